"""Group offsets in transactions on a real broker, byte by byte: when they count, through kills and compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest
from asking import create_topic

from tidelog.errors import ErrorCode
from tidelog.testing import RawClient, eventually
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.testing import BrokerProcess, StartBroker
    from tidelog.wire.declare import Message

    M = TypeVar("M", bound=Message)

WITHIN_S = 60.0
GROUP, ID = "readers", "writer"
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
OLD, NEW = 4, 5
"""TxnOffsetCommit before and since the group's partition joins the transaction by it."""


class Writer:
    """One transactional id, and what it knows of itself."""

    def __init__(self, broker: BrokerProcess, version: int = NEW) -> None:
        self._broker = broker
        self._version = version
        self.producer_id = self.epoch = -1

    def start(self) -> None:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
        eventually(
            lambda: self._call(find, 4, FindCoordinatorResponse).coordinators[0].error_code == 0, "a coordinator"
        )
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)

        def given() -> InitProducerIdResponse | None:
            reply = self._call(request, 4, InitProducerIdResponse)
            return None if reply.error_code in AGAIN else reply

        reply = eventually(given, "a producer id", within_s=WITHIN_S)
        assert reply.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch

    def announce(self) -> int:
        """What clients do before they store offsets, if that alone does not make the partition join."""
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=GROUP
        )
        return self._patiently(lambda: self._call(request, 3, AddOffsetsToTxnResponse).error_code)

    def commit(self, topic: str, offset: int) -> int:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )

        def once() -> int:
            reply = self._call(request, self._version, TxnOffsetCommitResponse)
            return reply.topics[0].partitions[0].error_code

        return self._patiently(once)

    def end(self, *, committed: bool) -> int:
        """An end in the newer way gives the epoch for the next transaction."""
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=committed
        )
        version = 5 if self._version == NEW else 3
        replies: list[EndTxnResponse] = []

        def once() -> int:
            replies.append(self._call(request, version, EndTxnResponse))
            return replies[-1].error_code

        code = self._patiently(once)
        if code == ErrorCode.NONE and version == 5:
            self.producer_id, self.epoch = replies[-1].producer_id, replies[-1].producer_epoch
        return code

    def _call(self, request: Message, version: int, reply: type[M]) -> M:
        with RawClient(self._broker.port) as client:
            return client.call(request, version, reply)

    @staticmethod
    def _patiently(once: Callable[[], int]) -> int:
        def answered() -> list[int] | None:
            code = once()
            return None if code in AGAIN else [code]

        return eventually(answered, "an answer", within_s=WITHIN_S)[0]


def commit_plainly(broker: BrokerProcess, topic: str, offset: int, metadata: str = "") -> None:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    request = OffsetCommitRequest(
        group_id=GROUP, member_id="", topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])]
    )

    def done() -> bool:
        with RawClient(broker.port) as client:
            code = client.call(request, 8, OffsetCommitResponse).topics[0].partitions[0].error_code
        assert code == 0 or code in AGAIN
        return code == 0

    eventually(done, "a plain commit", within_s=WITHIN_S)


def fetch(broker: BrokerProcess, topic: str, *, stable: bool = True) -> tuple[int, int]:
    """The offset and the error of the first partition."""
    wanted = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    request = OffsetFetchRequest(groups=[wanted], require_stable=stable)

    def answered() -> tuple[int, int] | None:
        with RawClient(broker.port) as client:
            (group,) = client.call(request, 8, OffsetFetchResponse).groups
        if group.error_code in AGAIN:
            return None
        (part,) = group.topics[0].partitions
        return part.committed_offset, part.error_code

    return eventually(answered, "an answer", within_s=WITHIN_S)


def becomes(broker: BrokerProcess, topic: str, offset: int) -> None:
    """The marker comes a little after the answer to EndTxn."""
    eventually(lambda: fetch(broker, topic) == (offset, 0), f"{offset} to be stable", within_s=WITHIN_S)


@pytest.fixture
def alone(fresh_broker: StartBroker) -> BrokerProcess:
    """A broker on which nobody else uses the group and the transactional id."""
    return fresh_broker({"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"})


def started(broker: BrokerProcess, topic: str, version: int) -> Writer:
    with RawClient(broker.port) as client:
        create_topic(client, topic)
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        eventually(lambda: client.call(find, 4, FindCoordinatorResponse).coordinators[0].error_code == 0, "the group")
    writer = Writer(broker, version)
    writer.start()
    return writer


@pytest.mark.parametrize("version", [OLD, NEW])
def test_offsets_count_with_their_transaction(alone: BrokerProcess, topic: str, version: int) -> None:
    writer = started(alone, topic, version)
    for offset, committed in [(1, True), (2, False), (3, True)]:
        before = fetch(alone, topic)
        if version == OLD:
            assert writer.announce() == ErrorCode.NONE
        assert writer.commit(topic, offset) == ErrorCode.NONE
        assert fetch(alone, topic) == UNSTABLE
        assert fetch(alone, topic, stable=False) == before
        assert writer.end(committed=committed) == ErrorCode.NONE
        becomes(alone, topic, offset if committed else before[0])


def test_who_has_not_announced_it_is_refused(alone: BrokerProcess, topic: str) -> None:
    writer = started(alone, topic, OLD)
    assert writer.commit(topic, 1) in {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}
    assert fetch(alone, topic) == (-1, 0)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_predecessor_is_refused(alone: BrokerProcess, topic: str, version: int) -> None:
    zombie = started(alone, topic, version)
    if version == OLD:
        zombie.announce()
    assert zombie.commit(topic, 1) == ErrorCode.NONE
    successor = Writer(alone, version)
    successor.start()
    becomes(alone, topic, -1)
    assert zombie.commit(topic, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end(committed=True) in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert fetch(alone, topic) == (-1, 0)


def test_a_message_that_comes_after_the_end_does_not_join_the_next(alone: BrokerProcess, topic: str) -> None:
    writer = started(alone, topic, NEW)
    assert writer.commit(topic, 1) == ErrorCode.NONE
    late = Writer(alone)
    late.producer_id, late.epoch = writer.producer_id, writer.epoch
    assert writer.end(committed=True) == ErrorCode.NONE
    becomes(alone, topic, 1)
    assert late.commit(topic, 99) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.commit(topic, 2) == ErrorCode.NONE
    assert late.commit(topic, 99) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.end(committed=True) == ErrorCode.NONE
    becomes(alone, topic, 2)


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_outlives_its_brokers(
    alone: BrokerProcess, topic: str, ending: str, committed: bool
) -> None:
    writer = started(alone, topic, NEW)
    commit_plainly(alone, topic, 1)
    assert writer.commit(topic, 2) == ErrorCode.NONE
    end_broker(alone, ending)
    assert fetch(alone, topic) == UNSTABLE
    assert fetch(alone, topic, stable=False) == (1, 0)
    assert writer.end(committed=committed) == ErrorCode.NONE
    becomes(alone, topic, 2 if committed else 1)
    end_broker(alone, ending)
    assert fetch(alone, topic) == (2 if committed else 1, 0)


def test_compaction_keeps_the_offset_that_counts(fresh_broker: StartBroker, topic: str) -> None:
    segment_bytes = 1 << 20
    broker = fresh_broker(
        {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": str(segment_bytes),
            "transaction.state.log.num.partitions": "1",
            "log.cleaner.backoff.ms": "20",
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.cleaner.dedupe.buffer.size": str(1 << 20),
            "log.segment.delete.delay.ms": "0",
        }
    )
    writer = started(broker, topic, NEW)
    commit_plainly(broker, topic, 1)
    for offset, committed in [(2, True), (3, False), (4, True), (5, False)]:
        assert writer.commit(topic, offset) == ErrorCode.NONE
        assert writer.end(committed=committed) == ErrorCode.NONE
        becomes(broker, topic, offset if committed else offset - 1)
    other = f"{topic}-other"
    with RawClient(broker.port) as client:
        create_topic(client, other)
    for number in range(2 * segment_bytes // 4000):  # so that all of the above is in a closed segment
        commit_plainly(broker, other, number, "x" * 4000)
    segment = broker.data_dir / "__consumer_offsets-0" / f"{0:020}.log"
    eventually(lambda: segment.stat().st_size < segment_bytes // 2, "compaction", within_s=WITHIN_S)
    end_broker(broker, "kill")
    assert fetch(broker, topic) == (4, 0)


def end_broker(broker: BrokerProcess, ending: str) -> None:
    if ending == "kill":
        broker.kill()
        broker.start()
    else:
        broker.restart()
