"""Produce, Fetch, WriteTxnMarkers and DescribeProducers around transactions: who is asked, who waits, what is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from handler_cases import Around, around
from replica_cases import NOW_MS, ORDERS, ORDERS_ID, A, B, role

from tidelog.config.topic import TopicConfig
from tidelog.errors import ErrorCode
from tidelog.handlers import describe_producers, fetch, list_offsets, produce, write_txn_markers
from tidelog.handlers.fetch_reply import size_of
from tidelog.handlers.handler import Waiting
from tidelog.records.build import build_batch
from tidelog.records.control import Marker, MarkerType
from tidelog.records.record import Record
from tidelog.types import ProducerId, TopicPartition
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PRODUCER = 7
SECOND = TopicPartition("orders", 1)


class Coordinator:
    """Stands in for the transaction coordinator, which is elsewhere in the cluster."""

    def __init__(self, answer: ErrorCode = ErrorCode.NONE) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), add))
        self.meanwhile()
        return dict.fromkeys(partitions, self.answer)


class Transactional:
    """Broker A leads two partitions without followers, and asks a coordinator."""

    def __init__(self, broker: Around, coordinator: Coordinator | None = None) -> None:
        self.broker = broker
        self.coordinator = coordinator or Coordinator()
        broker.services.transactions = self.coordinator  # type: ignore[assignment]  # only this much is asked of it
        broker.put_topic("orders", ORDERS_ID)
        for place in (ORDERS, SECOND):
            assert broker.node.take(role(A, 1, (A,), replicas=(A,), place=place))
        self.partition = broker.node.partition()

    async def produce(
        self,
        sequence: int,
        values: tuple[bytes, ...] = (b"v",),
        *,
        epoch: int = 0,
        version: int = 11,
        producer_ids: Sequence[int] = (PRODUCER,),
        transactional_id: str | None = "t",
        transactional: bool = True,
    ) -> list[ErrorCode]:
        """One batch to as many partitions as there are producer ids."""
        parts = [
            PartitionProduceData(index=at, records=batch(values, each, epoch, sequence, transactional=transactional))
            for at, each in enumerate(producer_ids)
        ]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name="orders", topic_id=ORDERS_ID, partition_data=parts)],
        )
        reply = await completed(self.broker.ask(produce.HANDLER, request, version, None))
        assert isinstance(reply, ProduceResponse)
        return [ErrorCode(each.error_code) for each in reply.responses[0].partition_responses]

    async def mark(
        self, *, commit: bool = True, epoch: int = 0, version: int = 0, coordinator_epoch: int = 0, partitions: int = 1
    ) -> list[ErrorCode]:
        marker = WritableTxnMarker(
            producer_id=PRODUCER,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=list(range(partitions)))],
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        reply = await self.broker.answer(write_txn_markers.HANDLER, WriteTxnMarkersRequest(markers=[marker]))
        assert isinstance(reply, WriteTxnMarkersResponse)
        assert reply.markers[0].producer_id == PRODUCER
        return [ErrorCode(each.error_code) for each in reply.markers[0].topics[0].partitions]

    def fetch(self, offset: int = 0, *, committed: bool = True, wait_ms: int = 0, min_bytes: int = 1) -> Any:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            isolation_level=int(committed),
            topics=[FetchTopic(topic_id=ORDERS_ID, partitions=[part])],
        )
        return self.broker.ask(fetch.HANDLER, request, 16, None)

    async def latest(self, *, committed: bool) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            ],
        )
        reply = await self.broker.answer(list_offsets.HANDLER, request, None)
        offset = reply.topics[0].partitions[0].offset
        assert isinstance(offset, int)
        return offset


def batch(values: tuple[bytes, ...], producer_id: int, epoch: int, sequence: int, *, transactional: bool) -> memoryview:
    records = [Record(at, NOW_MS, b"k", value) for at, value in enumerate(values)]
    return memoryview(
        build_batch(
            records,
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


async def completed(answer: Any) -> Any:
    if asyncio.iscoroutine(answer):
        answer = await answer
    if not isinstance(answer, Waiting):
        return answer
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.then(future.set_result)
    return await asyncio.wait_for(future, 30)


def data_of(reply: Any) -> PartitionData:
    data = reply.responses[0].partitions[0]
    assert isinstance(data, PartitionData)
    return data


# -- Produce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "add"), [(9, False), (11, False), (12, True), (13, True)])
def test_the_coordinator_is_asked_once_for_all_partitions_when_a_transaction_begins(version: int, add: bool) -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        assert await stage.produce(0, producer_ids=(PRODUCER, PRODUCER), version=version) == [ErrorCode.NONE] * 2
        assert stage.coordinator.asked == [("t", PRODUCER, 0, [ORDERS, SECOND], add)]
        assert await stage.produce(1, producer_ids=(PRODUCER, PRODUCER), version=version) == [ErrorCode.NONE] * 2
        assert len(stage.coordinator.asked) == 1, "it is open in both"

    around(story)


def test_nobody_is_asked_where_the_settings_say_so_except_to_join() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        assert await stage.produce(0, version=11) == [ErrorCode.NONE]
        assert stage.coordinator.asked == []
        assert await stage.produce(0, version=12, epoch=1) == [ErrorCode.NONE]
        assert len(stage.coordinator.asked) == 1

    around(story, {"transaction.partition.verification.enable": "false"})


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_the_coordinator_says_is_told_as_producers_understand_it(
    version: int, said: ErrorCode, told: ErrorCode
) -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker, Coordinator(said))
        assert await stage.produce(0, version=version) == [told]
        assert stage.partition.log.log_end_offset == 0

    around(story)


def test_the_coordinator_is_asked_again_when_a_marker_overtakes_its_answer() -> None:
    """It may have vouched for the transaction that the marker ended, or for the next: only it can tell."""

    async def story(broker: Around) -> None:
        stage = Transactional(broker)

        def mark() -> None:
            stage.partition.append_marker(Marker(MarkerType.ABORT, 0), PRODUCER, 0, NOW_MS, transaction_version=0)

        def mark_once() -> None:
            mark()
            stage.coordinator.meanwhile = lambda: None

        def mark_and_forget() -> None:
            mark()
            stage.coordinator.answer = ErrorCode.TRANSACTION_ABORTABLE

        stage.coordinator.meanwhile = mark
        assert await stage.produce(0) == [ErrorCode.NOT_ENOUGH_REPLICAS], "it cannot go on like this for ever"
        markers = stage.partition.log.log_end_offset
        assert markers == len(stage.coordinator.asked) > 1, "nothing else was written"
        stage.coordinator.meanwhile = mark_and_forget
        assert await stage.produce(0) == [ErrorCode.TRANSACTION_ABORTABLE]
        assert stage.partition.log.log_end_offset == markers + 1
        stage.coordinator.answer, stage.coordinator.meanwhile = ErrorCode.NONE, mark_once
        assert await stage.produce(0) == [ErrorCode.NONE]
        assert stage.partition.log.log_end_offset == markers + 3

    around(story)


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        assert await stage.produce(0, transactional_id=None) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]

    around(story)


def test_a_transaction_has_one_producer_id() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        refused = [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert await stage.produce(0, producer_ids=(PRODUCER, PRODUCER + 1)) == refused

    around(story)


def test_what_is_refused_at_once_is_not_asked_about() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        assert broker.node.take(role(B, 2, (A, B), replicas=(A, B), place=SECOND, partition_epoch=1))
        outcome = await stage.produce(0, producer_ids=(PRODUCER, PRODUCER))
        assert outcome == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert stage.coordinator.asked == [("t", PRODUCER, 0, [ORDERS], False)]

    around(story)


# -- reading ------------------------------------------------------------------------------------------------------


def test_readers_of_what_is_committed_stop_before_an_open_transaction() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        await stage.produce(0, (b"a", b"b"), producer_ids=(1,), transactional=False)
        await stage.produce(0, (b"c", b"d"))
        seen = data_of(await completed(stage.fetch()))
        assert (seen.high_watermark, seen.last_stable_offset, seen.aborted_transactions) == (4, 2, [])
        assert await stage.latest(committed=True) == 2
        assert await stage.latest(committed=False) == 4
        everything = data_of(await completed(stage.fetch(committed=False)))
        assert everything.aborted_transactions is None
        assert size_of(everything) > size_of(seen) > 0
        assert not data_of(await completed(stage.fetch(2))).records

    around(story)


def test_aborted_transactions_are_named_to_those_who_read_them() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        await stage.produce(0, (b"a", b"b"))
        assert await stage.mark(commit=False, epoch=1, version=2) == [ErrorCode.NONE]
        await stage.produce(0, (b"c",), epoch=1)
        assert await stage.mark(epoch=2, version=2) == [ErrorCode.NONE]
        seen = data_of(await completed(stage.fetch()))
        assert seen.last_stable_offset == 5
        assert seen.aborted_transactions == [AbortedTransaction(producer_id=PRODUCER, first_offset=0)]
        assert data_of(await completed(stage.fetch(2))).aborted_transactions == [
            AbortedTransaction(producer_id=PRODUCER, first_offset=0)
        ]
        assert data_of(await completed(stage.fetch(3))).aborted_transactions == []

    around(story)


def test_a_reader_of_what_is_committed_waits_for_the_end_of_the_transaction() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        await stage.produce(0)
        waiting = stage.fetch(wait_ms=60_000)
        woken: list[Any] = []
        waiting.then(woken.append)
        plain: list[Any] = []
        stage.fetch(1, committed=False, wait_ms=60_000).then(plain.append)
        await stage.produce(1)
        assert len(plain) == 1, "others are told of every record"
        assert woken == []
        await stage.mark()
        assert len(woken) == 1
        assert data_of(woken[0]).last_stable_offset == 3

    around(story)


def test_a_session_hears_that_the_last_stable_offset_has_moved() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        await stage.produce(0)
        part = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=ORDERS_ID, partitions=[part])]
        first = await completed(
            broker.ask(
                fetch.HANDLER,
                FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=0, session_epoch=0, topics=topics),
                16,
                None,
            )
        )
        assert data_of(first).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await stage.mark()
        again = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=1, isolation_level=0, topics=[]
        )
        heard = await completed(broker.ask(fetch.HANDLER, again, 16, None))
        assert data_of(heard).last_stable_offset == 2

    around(story)


# -- markers ------------------------------------------------------------------------------------------------------


def test_a_marker_is_answered_when_it_is_safe() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        assert broker.node.take(role(A, 2, (A, B), replicas=(A, B), partition_epoch=1))
        marker = WritableTxnMarker(
            producer_id=PRODUCER,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        twice = WriteTxnMarkersRequest(markers=[marker, marker])
        answer = broker.ask(write_txn_markers.HANDLER, twice, 2, B)
        assert isinstance(answer, Waiting)
        told: list[WriteTxnMarkersResponse] = []
        answer.then(told.append)
        stage.partition.fetched(B, 1, broker.clock.passed_ms)
        assert told == [], "the second one is not safe yet"
        stage.partition.fetched(B, 2, broker.clock.passed_ms)
        assert [each.topics[0].partitions[0].error_code for each in told[0].markers] == [0, 0]

    around(story)


def test_markers_are_refused_each_for_its_own_reason() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        await stage.produce(0, producer_ids=(PRODUCER, PRODUCER), epoch=5)
        assert await stage.mark(epoch=5, coordinator_epoch=3) == [ErrorCode.NONE]
        assert await stage.mark(epoch=4, coordinator_epoch=3, partitions=3) == [
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await stage.mark(epoch=5, coordinator_epoch=2, partitions=2) == [
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            ErrorCode.NONE,
        ]

    around(story)


def test_too_few_in_sync_replicas_keep_a_marker_out() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        assert broker.node.take(role(A, 2, (A,), replicas=(A, B), partition_epoch=1))
        stage.partition.configure(TopicConfig(min_insync_replicas=2))
        assert await stage.mark() == [ErrorCode.NOT_ENOUGH_REPLICAS]

    around(story)


def test_producers_and_their_open_transactions_are_shown() -> None:
    async def story(broker: Around) -> None:
        stage = Transactional(broker)
        await stage.produce(0, (b"a", b"b"), epoch=3)
        await stage.mark(epoch=3, coordinator_epoch=8)
        await stage.produce(2, epoch=3)
        request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0, 1, 9])])
        reply = await broker.answer(describe_producers.HANDLER, request, None)
        found, empty, unknown = reply.topics[0].partitions
        assert found.active_producers == [
            ProducerState(
                producer_id=PRODUCER,
                producer_epoch=3,
                last_sequence=2,
                last_timestamp=NOW_MS,
                coordinator_epoch=8,
                current_txn_start_offset=3,
            )
        ]
        assert (empty.error_code, empty.active_producers) == (0, [])
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    around(story)
