"""Questions of partition leaders to transaction coordinators, each on whatever broker it is (KIP-890).

Questions to one broker go out together: those that come while enough requests are on their way wait for the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from functools import partial
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

logger = logging.getLogger(__name__)

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
        self._tasks: set[asyncio.Task[BrokerError]] = set()

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
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _send_waiting(self, broker: int) -> None:
        while self._waiting[broker] and self._under_way[broker] < REQUESTS_AT_ONCE_MAX:
            questions = self._next_questions(self._waiting[broker])
            if questions:
                self._under_way[broker] += 1
                task = asyncio.get_running_loop().create_task(self._exchange(broker, questions), name="ask coordinator")
                self._tasks.add(task)
                task.add_done_callback(partial(self._exchanged, broker, questions))

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

    async def _exchange(self, broker: int, questions: dict[str, _Question]) -> BrokerError:
        """Gives out the answers, and gives back why the others have none."""
        request = AddPartitionsToTxnRequest(transactions=[each.transaction for each in questions.values()])
        try:
            response: AddPartitionsToTxnResponse = await self._send(broker, request)
        except PeerUnreachable as error:
            return BrokerError(ErrorCode.NETWORK_EXCEPTION, f"the transaction coordinator gave no answer: {error}")
        for result in response.results_by_transaction:
            question = questions.get(result.transactional_id)
            if question is not None and not question.answer.done():
                question.answer.set_result(result)
        code = ErrorCode(response.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
        return BrokerError(code, "the transaction coordinator refused to answer")

    def _exchanged(self, broker: int, questions: dict[str, _Question], task: asyncio.Task[BrokerError]) -> None:
        """Nobody is left to wait, whatever became of the task."""
        self._tasks.discard(task)
        failure = BrokerError(ErrorCode.NETWORK_EXCEPTION, "this broker stops")
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                logger.error("asking the transaction coordinator failed", exc_info=error)
                failure = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "asking the transaction coordinator failed")
            else:
                failure = task.result()
        for question in questions.values():
            if not question.answer.done():
                question.answer.set_exception(failure)
        self._under_way[broker] -= 1
        self._send_waiting(broker)
