"""A transactional producer that goes one step at a time, so that a broker can be ended exactly between two of them.

It speaks either dialect: that of clients who add partitions to a transaction before they write (transaction.version 0
and 1), and that of clients whose partitions join by being written to, and whose epoch rises with every end (2). What
real clients try again, it tries again; every other refusal is an error.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.record import Record
from tidelog.testing import eventually
from tidelog.types import ProducerId, TopicPartition
from tidelog.wire.messages import add_offsets_to_txn, add_partitions_to_txn, end_txn, txn_offset_commit
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.testing import RawClient
    from tidelog.testing.cluster import ClusterProcesses
    from tidelog.wire.declare import Message

    M = TypeVar("M", bound=Message)

WITHIN_S = 90.0
"""For hanging, not for slowness."""
ANSWER_WITHIN_S = 10.0
TIMEOUT_MS = 600_000
"""No transaction of these tests is to time out."""

_NOW_MS = SystemClock().now_ms()
_MEMBER_OF_NONE = -1

COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
LEADER_MOVES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Dialect(IntEnum):
    """By the transaction.version that the client was told."""

    ADDS = 1
    JOINS = 2


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class RefusedError(AssertionError):
    """A broker refused what it should have done."""

    def __init__(self, who: str, what: str, code: int) -> None:
        super().__init__(f"{who}: {what} was refused with {ErrorCode(code).name}")
        self.code = ErrorCode(code)


class StepwiseProducer:
    def __init__(self, cluster: ClusterProcesses, transactional_id: str, group: str, dialect: Dialect) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.group = group
        self.dialect = dialect
        self.producer_id = self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._ready: list[tuple[RawClient, Message, int]] = []

    def __str__(self) -> str:
        return f"{self.transactional_id} ({self.producer_id}, epoch {self.epoch})"

    # --- the steps ---

    def initialise(self) -> None:
        def attempt() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
            return self._ask(self._coordinator(), request, 5, InitProducerIdResponse)

        reply = self._patiently("InitProducerId", attempt, lambda reply: reply.error_code, COORDINATOR_MOVES)
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        self._sequences.clear()

    def add(self, *places: TopicPartition) -> None:
        """Only clients of the older dialect have this step."""
        if self.dialect is Dialect.JOINS:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )

        def attempt() -> add_partitions_to_txn.AddPartitionsToTxnResponse:
            return self._ask(self._coordinator(), request, 3, add_partitions_to_txn.AddPartitionsToTxnResponse)

        def code(reply: add_partitions_to_txn.AddPartitionsToTxnResponse) -> int:
            return max(
                each.partition_error_code
                for topic in reply.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            )

        self._patiently("AddPartitionsToTxn", attempt, code, COORDINATOR_MOVES | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

    def add_offsets(self) -> None:
        """Only clients of the older dialect have this step."""
        if self.dialect is Dialect.JOINS:
            return
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )

        def attempt() -> add_offsets_to_txn.AddOffsetsToTxnResponse:
            return self._ask(self._coordinator(), request, 3, add_offsets_to_txn.AddOffsetsToTxnResponse)

        self._patiently("AddOffsetsToTxn", attempt, lambda reply: reply.error_code, COORDINATOR_MOVES)

    def produce(self, place: TopicPartition, values: Sequence[str]) -> None:
        request = self._produce_request(place, values)

        def attempt() -> ProduceResponse:
            return self._ask(self._leader(place), request, self._produce_version, ProduceResponse)

        def code(reply: ProduceResponse) -> int:
            found = reply.responses[0].partition_responses[0].error_code
            return ErrorCode.NONE if found == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else found

        self._patiently(f"Produce to {place}", attempt, code, LEADER_MOVES)
        self._sequences[place] = self._sequences.get(place, 0) + len(values)

    def commit_offset(self, offset: int, partition: int = 0) -> None:
        request = self._offset_request(offset, partition)

        def attempt() -> txn_offset_commit.TxnOffsetCommitResponse:
            version = self._offset_version
            return self._ask(self._group_coordinator(), request, version, txn_offset_commit.TxnOffsetCommitResponse)

        self._patiently(
            "TxnOffsetCommit", attempt, lambda reply: reply.topics[0].partitions[0].error_code, COORDINATOR_MOVES
        )

    def end(self, *, committed: bool) -> None:
        """Ends the transaction, or finds out that it has ended like this."""
        request = self._end_request(committed=committed)

        def attempt() -> end_txn.EndTxnResponse:
            return self._ask(self._coordinator(), request, self._end_version, end_txn.EndTxnResponse)

        reply = self._patiently("EndTxn", attempt, lambda reply: reply.error_code, COORDINATOR_MOVES)
        self.ended(reply)

    def end_once(self, *, committed: bool) -> end_txn.EndTxnResponse:
        """Asks once, and must succeed. What the answer says of the next epoch is not taken: `ended` does that."""
        reply = self._ask(
            self._coordinator(), self._end_request(committed=committed), self._end_version, end_txn.EndTxnResponse
        )
        if reply.error_code:
            raise RefusedError(str(self), "EndTxn", reply.error_code)
        return reply

    def ended(self, reply: end_txn.EndTxnResponse) -> None:
        """Goes on as the answer says."""
        if self.dialect is Dialect.JOINS:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self._sequences.clear()

    # --- requests whose answers nobody waits for ---

    def aim_produce(self, place: TopicPartition, values: Sequence[str]) -> None:
        self._aim(self._leader(place), self._produce_request(place, values), self._produce_version)

    def aim_offset(self, offset: int) -> None:
        self._aim(self._group_coordinator(), self._offset_request(offset), self._offset_version)

    def aim_end(self, *, committed: bool) -> None:
        self._aim(self._coordinator(), self._end_request(committed=committed), self._end_version)

    def fire(self) -> None:
        """Sends all that was aimed."""
        for client, request, version in self._ready:
            client.send(request, version)

    def forget_answers(self) -> None:
        for client, _request, _version in self._ready:
            client.close()
        self._ready.clear()

    # --- looking ---

    def state(self) -> str:
        """How the coordinator sees the transaction."""

        def attempt() -> DescribeTransactionsResponse:
            request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
            return self._ask(self._coordinator(), request, 0, DescribeTransactionsResponse)

        reply = self._patiently(
            "DescribeTransactions", attempt, lambda reply: reply.transaction_states[0].error_code, COORDINATOR_MOVES
        )
        return reply.transaction_states[0].transaction_state

    # --- requests ---

    @property
    def _produce_version(self) -> int:
        return 12 if self.dialect is Dialect.JOINS else 11

    @property
    def _offset_version(self) -> int:
        return 5 if self.dialect is Dialect.JOINS else 4

    @property
    def _end_version(self) -> int:
        return 5 if self.dialect is Dialect.JOINS else 4

    def _produce_request(self, place: TopicPartition, values: Sequence[str]) -> ProduceRequest:
        batch = build_batch(
            [Record(number, _NOW_MS, None, value.encode()) for number, value in enumerate(values)],
            producer_id=ProducerId(self.producer_id),
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=True,
        )
        data = PartitionProduceData(index=place.partition, records=batch)
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )

    def _offset_request(self, offset: int, partition: int = 0) -> txn_offset_commit.TxnOffsetCommitRequest:
        committed = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        return txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=_MEMBER_OF_NONE,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=READ_TOPIC, partitions=[committed])],
        )

    def _end_request(self, *, committed: bool) -> end_txn.EndTxnRequest:
        return end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    # --- asking ---

    def _coordinator(self) -> int:
        return find_coordinator(self._cluster, self.transactional_id, KeyType.TRANSACTION)

    def _group_coordinator(self) -> int:
        return find_coordinator(self._cluster, self.group, KeyType.GROUP)

    def _leader(self, place: TopicPartition) -> int:
        leader = self._cluster.view().partitions[place].leader
        if leader not in self._cluster.numbers:
            raise ConnectionError(f"{place} has no leader")
        return leader

    def _ask(self, broker: int, request: Message, version: int, reply: type[M]) -> M:
        with self._cluster.connect(broker, timeout_s=ANSWER_WITHIN_S) as client:
            return client.call(request, version, reply)

    def _aim(self, broker: int, request: Message, version: int) -> None:
        self._ready.append((self._cluster.connect(broker, timeout_s=ANSWER_WITHIN_S), request, version))

    def _patiently(
        self, what: str, attempt: Callable[[], M], code_of: Callable[[M], int], again: frozenset[ErrorCode]
    ) -> M:
        last = "nobody answered"

        def answered() -> M | None:
            nonlocal last
            try:
                reply = attempt()
            except OSError as error:
                last = str(error)
                return None
            code = code_of(reply)
            if code in again:
                last = ErrorCode(code).name
                return None
            if code:
                raise RefusedError(str(self), what, code)
            return reply

        try:
            return eventually(answered, what, within_s=WITHIN_S, every_s=0.05)
        except TimeoutError as error:
            raise AssertionError(f"{self}: {error}; at last: {last}") from None


READ_TOPIC = "open"
"""What the groups are said to have read."""


def find_coordinator(cluster: ClusterProcesses, key: str, kind: KeyType) -> int:
    """Raises ConnectionError while there is none."""
    with cluster.connect(cluster.awake[0], timeout_s=ANSWER_WITHIN_S) as client:
        request = FindCoordinatorRequest(key=key, key_type=kind)
        reply = client.call(request, 3, FindCoordinatorResponse)
    if reply.error_code or reply.node_id not in cluster.numbers:
        raise ConnectionError(f"{key} has no coordinator: {ErrorCode(reply.error_code).name}")
    return reply.node_id
