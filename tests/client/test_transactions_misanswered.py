"""Transactions with a coordinator and leaders that misbehave on purpose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from scripted_broker import HANG_UP, SILENCE, Misdeed, ScriptedBroker
from test_producer_delivery import headers_of, refusing

from tidelog.client.errors import InvalidState, ProducerFenced, ProducerStopped, TimedOut, TransactionFailed
from tidelog.client.producer import Producer
from tidelog.errors import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.wire.declare import Message

    Work = Callable[[ScriptedBroker, Producer], Coroutine[Any, Any, None]]

NEWER = {"transaction.version": 2}
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "linger_ms": 0, "transactional_id": "x"}


def run(work: Work, *, newer: bool = True, **settings: Any) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 2}) as broker:
            broker.features = dict(NEWER) if newer else {}
            async with Producer(broker.bootstrap, **(QUICK | settings)) as producer:
                await work(broker, producer)
            await broker.all_gone()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def ending(code: ErrorCode, times: int = 1) -> Callable[[EndTxnRequest, int], Message | None]:
    def react(_request: EndTxnRequest, before: int) -> Message | None:
        return EndTxnResponse(throttle_time_ms=0, error_code=code) if before < times else None

    return react


async def commit_one(producer: Producer) -> None:
    async with producer.transaction():
        await producer.send("t", b"v", partition=0)


def test_the_newer_rules_need_no_adding_and_raise_the_epoch_at_each_end() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        for _ in range(3):
            await commit_one(producer)
        headers = headers_of(broker)
        assert [(each.producer_epoch, each.base_sequence) for each in headers] == [(0, 0), (1, 0), (2, 0)]
        assert all(each.transactional for each in headers)
        assert broker.requests(AddPartitionsToTxnRequest) == []
        assert {each.transactional_id for each in broker.requests(ProduceRequest)} == {"x"}

    run(work)


def test_the_older_rules_add_each_partition_once_and_go_on_counting() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        for _ in range(2):
            async with producer.transaction():
                for _ in range(3):
                    await producer.send_and_wait("t", b"v", partition=0)
                await producer.send_and_wait("t", b"v", partition=1)
        added = [
            (topic.name, tuple(topic.partitions))
            for each in broker.requests(AddPartitionsToTxnRequest)
            for topic in each.v3_and_below_topics
        ]
        assert added == [("t", (0,)), ("t", (1,))] * 2
        found = [(each.producer_epoch, each.base_sequence) for each in headers_of(broker)]
        assert found == [(0, 0), (0, 1), (0, 2), (0, 0), (0, 3), (0, 4), (0, 5), (0, 1)]
        assert max(broker.versions[AddPartitionsToTxnRequest]) == 3
        assert max(broker.versions[EndTxnRequest]) == 4
        assert max(broker.versions[ProduceRequest]) == 11

    run(work, newer=False)


@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.parametrize(
    "code",
    [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR],
)
def test_the_end_is_asked_for_until_it_comes(code: ErrorCode, *, newer: bool) -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.on(EndTxnRequest, ending(code, times=3))
        looked_for = len(broker.requests(FindCoordinatorRequest))
        await commit_one(producer)
        ends = broker.requests(EndTxnRequest)
        assert len(ends) == 4
        assert all((each.committed, each.producer_epoch) == (True, 0) for each in ends)
        moved = code is ErrorCode.NOT_COORDINATOR
        assert len(broker.requests(FindCoordinatorRequest)) - looked_for == (3 if moved else 0)

    run(work, newer=newer)


@pytest.mark.parametrize("misdeed", [HANG_UP, SILENCE])
def test_a_commit_without_an_answer_is_asked_for_again_and_cannot_be_aborted(misdeed: Misdeed) -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.on(EndTxnRequest, lambda _request, _before: misdeed)
        await producer.begin()
        await producer.send("t", b"v")
        with pytest.raises(TimedOut):
            await producer.commit()
        with pytest.raises(InvalidState, match=r"commit\(\) again"):
            await producer.abort()
        with pytest.raises(InvalidState, match=r"commit\(\) again"):
            await producer.begin()
        broker.on(EndTxnRequest, lambda _request, _before: None)
        await producer.commit()
        await commit_one(producer)
        assert {each.committed for each in broker.requests(EndTxnRequest)} == {True}

    run(work, max_block_ms=300)


def test_a_commit_that_times_out_at_the_end_of_a_block_is_not_aborted() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.on(EndTxnRequest, lambda _request, _before: SILENCE)
        with pytest.raises(TimedOut):
            await commit_one(producer)
        assert {each.committed for each in broker.requests(EndTxnRequest)} == {True}

    run(work, max_block_ms=200)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_who_is_fenced_stops(code: ErrorCode) -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.on(EndTxnRequest, ending(code, times=99))
        with pytest.raises(ProducerFenced):
            await commit_one(producer)
        with pytest.raises(ProducerFenced):
            await producer.begin()
        assert len(broker.requests(EndTxnRequest)) == 1

    run(work)


def test_a_lost_answer_before_being_fenced_leaves_the_outcome_open_and_says_so() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        def react(_request: EndTxnRequest, before: int) -> Message | Misdeed:
            return HANG_UP if before == 0 else EndTxnResponse(throttle_time_ms=0, error_code=ErrorCode.PRODUCER_FENCED)

        broker.on(EndTxnRequest, react)
        with pytest.raises(ProducerFenced, match="not known"):
            await commit_one(producer)

    run(work)


@pytest.mark.parametrize("newer", [True, False])
def test_when_sequences_are_in_doubt_the_next_transaction_has_a_higher_epoch(*, newer: bool) -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        await commit_one(producer)
        broker.on(ProduceRequest, refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, times=2))
        with pytest.raises(TransactionFailed):
            await commit_one(producer)
        await commit_one(producer)
        epochs = [each.producer_epoch for each in headers_of(broker)]
        assert epochs == ([0, 1, 2] if newer else [0, 0, 1])
        assert headers_of(broker)[-1].base_sequence == 0
        claimed = [(each.producer_id, each.producer_epoch) for each in broker.requests(InitProducerIdRequest)]
        assert claimed == ([(-1, -1)] if newer else [(-1, -1), (1001, 0)])

    run(work, newer=newer)


def test_a_broker_that_cannot_renew_an_epoch_ends_the_producer() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.on(ProduceRequest, refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, times=1))
        await producer.begin()
        await asyncio.wait([await producer.send("t", b"v")])
        with pytest.raises(ProducerStopped, match="InitProducerId version 3"):
            await producer.abort()

    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.offered[InitProducerIdRequest.API] = (0, 2)
            async with Producer(broker.bootstrap, **QUICK) as producer:
                await work(broker, producer)

    asyncio.run(scenario())


def test_one_lost_record_spares_the_rest_the_way() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.on(ProduceRequest, refusing(ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1))
        await producer.begin()
        await asyncio.wait([await producer.send("t", b"refused", partition=0)])
        with pytest.raises(TransactionFailed, match="abort it"):
            await producer.send("t", b"in vain", partition=1)
        await producer.abort()
        assert len(broker.requests(ProduceRequest)) == 1
        assert [each.committed for each in broker.requests(EndTxnRequest)] == [False]

    run(work)


def test_adding_partitions_is_refused_and_the_records_are_told() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.offered[ProduceRequest.API] = (3, 11)

        def react(request: AddPartitionsToTxnRequest, before: int) -> Message | None:
            reply: Any = broker._coordinate(request)
            for topic in reply.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    each.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if before == 0 else 0
            return reply  # type: ignore[no-any-return]

        broker.on(AddPartitionsToTxnRequest, react)
        with pytest.raises(TransactionFailed):
            await commit_one(producer)
        assert broker.requests(ProduceRequest) == []
        await commit_one(producer)
        assert [each.committed for each in broker.requests(EndTxnRequest)] == [False, True]

    run(work, newer=False)


def test_a_forgotten_producer_begins_anew_after_aborting() -> None:
    async def work(broker: ScriptedBroker, producer: Producer) -> None:
        broker.on(EndTxnRequest, ending(ErrorCode.INVALID_PRODUCER_ID_MAPPING, times=2))
        with pytest.raises(TransactionFailed):
            await commit_one(producer)
        await commit_one(producer)
        assert [each.committed for each in broker.requests(EndTxnRequest)] == [True, False, True]
        assert len(broker.requests(InitProducerIdRequest)) == 2

    run(work)


@pytest.mark.parametrize(
    ("code", "times", "kind"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, 3, None),
        (ErrorCode.NOT_COORDINATOR, 2, None),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, 1, ProducerStopped),
        (ErrorCode.PRODUCER_FENCED, 1, ProducerFenced),
    ],
)
def test_the_first_question_decides_whether_it_starts(
    code: ErrorCode, times: int, kind: type[BaseException] | None
) -> None:
    def react(_request: InitProducerIdRequest, before: int) -> Message | None:
        refused = InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=-1)
        return refused if before < times else None

    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(InitProducerIdRequest, react)
            producer = Producer(broker.bootstrap, **QUICK)
            if kind is None:
                await producer.start()
                await commit_one(producer)
                await producer.close()
            else:
                with pytest.raises(kind):
                    await producer.start()
            await broker.all_gone()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "silent", [InitProducerIdRequest, FindCoordinatorRequest, AddPartitionsToTxnRequest, EndTxnRequest]
)
@pytest.mark.parametrize("newer", [True, False])
def test_cancelling_leaves_no_task_and_no_connection(silent: type[Any], *, newer: bool) -> None:
    """Wherever it hangs."""

    async def whole_life(broker: ScriptedBroker) -> None:
        async with Producer(broker.bootstrap, **QUICK) as producer:
            for _ in range(2):
                await commit_one(producer)
            if newer and silent is AddPartitionsToTxnRequest:
                await asyncio.Event().wait()  # by these rules it is never asked

    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.features = dict(NEWER) if newer else {}
            asked = asyncio.Event()

            def hang(_request: Any, _before: int) -> Misdeed:
                asked.set()
                return SILENCE

            broker.on(silent, hang)
            task = asyncio.create_task(whole_life(broker))
            if newer and silent is AddPartitionsToTxnRequest:
                await broker.something_stored()
            else:
                await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await broker.all_gone()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
