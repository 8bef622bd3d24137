"""Questions of partition leaders to transaction coordinators, each on whatever broker it is (KIP-890).

Questions to one broker go out together: those that come while enough requests are on their way wait for the next.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import BrokerError, ErrorCode, PeerUnreachable
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.wire.declare import Message
    from tidelog.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResult,
        AddPartitionsToTxnTransaction,
    )

REQUESTS_AT_ONCE_MAX = 4
QUESTIONS_PER_REQUEST_MAX = 500
QUESTIONS_WAITING_MAX = 10_000


class _Question(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    answer: asyncio.Future[AddPartitionsToTxnResult]


class TransactionQuestions:
    def __init__(self, send: Callable[[int, Message], Awaitable[Any]]) -> None:
        self._send = send
        self._waiting: defaultdict[int, deque[_Question]] = defaultdict(deque)
        self._under_way: defaultdict[int, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, broker: int, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        """Raises BrokerError if there is no answer."""
        if len(self._waiting[broker]) >= QUESTIONS_WAITING_MAX:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many transactions are being asked for: try again"
            )
        answer: asyncio.Future[AddPartitionsToTxnResult] = asyncio.get_running_loop().create_future()
        self._waiting[broker].append(_Question(transaction, answer))
        self._send_waiting(broker)
        return await answer

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _send_waiting(self, broker: int) -> None:
        while self._waiting[broker] and self._under_way[broker] < REQUESTS_AT_ONCE_MAX:
            questions = self._next_questions(self._waiting[broker])
            if questions:
                self._under_way[broker] += 1
                task = asyncio.get_running_loop().create_task(self._exchange(broker, questions), name="ask coordinator")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _next_questions(self, waiting: deque[_Question]) -> dict[str, _Question]:
        """By transactional id, of which the answer can name each only once."""
        questions: dict[str, _Question] = {}
        while waiting and len(questions) < QUESTIONS_PER_REQUEST_MAX:
            if waiting[0].transaction.transactional_id in questions:
                break
            question = waiting.popleft()
            if not question.answer.done():
                questions[question.transaction.transactional_id] = question
        return questions

    async def _exchange(self, broker: int, questions: dict[str, _Question]) -> None:
        failure = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "asking the transaction coordinator failed")
        try:
            request = AddPartitionsToTxnRequest(transactions=[each.transaction for each in questions.values()])
            response: AddPartitionsToTxnResponse = await self._send(broker, request)
            if response.error_code:
                failure = BrokerError(ErrorCode(response.error_code), "the transaction coordinator refused to answer")
            for result in response.results_by_transaction:
                question = questions.pop(result.transactional_id, None)
                if question is not None and not question.answer.done():
                    question.answer.set_result(result)
        except PeerUnreachable as error:
            failure = BrokerError(ErrorCode.NETWORK_EXCEPTION, f"the transaction coordinator gave no answer: {error}")
        finally:
            for question in questions.values():
                if not question.answer.done():
                    question.answer.set_exception(failure)
            self._under_way[broker] -= 1
            self._send_waiting(broker)
