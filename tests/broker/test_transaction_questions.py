"""Leaders ask coordinators about transactions: together where they can, and never without an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.broker import transaction_questions
from tidelog.broker.transaction_questions import REQUESTS_AT_ONCE_MAX, TransactionQuestions
from tidelog.errors import BrokerError, ErrorCode, PeerUnreachable
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from tidelog.wire.declare import Message


def question(name: str) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(transactional_id=name, producer_id=1, producer_epoch=0, topics=[])


class Coordinator:
    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.error_code = ErrorCode.NONE
        self.failure: Exception | None = None
        self.silent_about: set[str] = set()

    async def send(self, _broker: int, request: Message) -> Any:
        assert isinstance(request, AddPartitionsToTxnRequest)
        names = [each.transactional_id for each in request.transactions]
        self.requests.append(names)
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            error_code=self.error_code,
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=name, topic_results=[])
                for name in names
                if name not in self.silent_about and not self.error_code
            ],
        )


async def refusal(questions: TransactionQuestions) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        await questions.ask(1, question("x"))
    return refused.value.code


def test_questions_that_come_while_enough_are_on_their_way_go_together() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        coordinator.may_answer.clear()
        questions = TransactionQuestions(coordinator.send)
        names = [f"x{number}" for number in range(50)]
        asked = [asyncio.ensure_future(questions.ask(1, question(name))) for name in names]
        await asyncio.sleep(0)
        coordinator.may_answer.set()
        answers = await asyncio.gather(*asked)
        assert [answer.transactional_id for answer in answers] == names
        assert [len(request) for request in coordinator.requests] == [1] * REQUESTS_AT_ONCE_MAX + [46]

    asyncio.run(check())


def test_a_request_names_each_transactional_id_once() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        coordinator.may_answer.clear()
        questions = TransactionQuestions(coordinator.send)
        asked = [asyncio.ensure_future(questions.ask(1, question("x"))) for _ in range(REQUESTS_AT_ONCE_MAX + 3)]
        await asyncio.sleep(0)
        coordinator.may_answer.set()
        await asyncio.gather(*asked)
        assert coordinator.requests == [["x"]] * (REQUESTS_AT_ONCE_MAX + 3)

    asyncio.run(check())


def test_every_failure_is_an_answer() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        questions = TransactionQuestions(coordinator.send)
        coordinator.silent_about = {"x"}
        assert await refusal(questions) is ErrorCode.UNKNOWN_SERVER_ERROR
        coordinator.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await refusal(questions) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        coordinator.failure = PeerUnreachable("away")
        assert await refusal(questions) is ErrorCode.NETWORK_EXCEPTION

    asyncio.run(check())


def test_nobody_waits_in_a_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_questions, "QUESTIONS_WAITING_MAX", 2)

    async def check() -> None:
        coordinator = Coordinator()
        coordinator.may_answer.clear()
        questions = TransactionQuestions(coordinator.send)
        asked = [asyncio.ensure_future(questions.ask(1, question(f"{n}"))) for n in range(REQUESTS_AT_ONCE_MAX + 2)]
        await asyncio.sleep(0)
        assert await refusal(questions) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        coordinator.may_answer.set()
        await asyncio.gather(*asked)

    asyncio.run(check())


def test_who_stops_waiting_is_not_asked_for() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        coordinator.may_answer.clear()
        questions = TransactionQuestions(coordinator.send)
        asked = [asyncio.ensure_future(questions.ask(1, question(f"{n}"))) for n in range(REQUESTS_AT_ONCE_MAX)]
        gone = asyncio.ensure_future(questions.ask(1, question("gone")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        coordinator.may_answer.set()
        await asyncio.gather(*asked)
        assert ["gone"] not in coordinator.requests

    asyncio.run(check())


def test_stopping_ends_all_that_wait() -> None:
    async def check() -> None:
        coordinator = Coordinator()
        coordinator.may_answer.clear()
        questions = TransactionQuestions(coordinator.send)
        asked = [asyncio.ensure_future(questions.ask(1, question(f"{n}"))) for n in range(REQUESTS_AT_ONCE_MAX)]
        await asyncio.sleep(0)
        await questions.stop()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(answer, BrokerError) for answer in answers)

    asyncio.run(check())
