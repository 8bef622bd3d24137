"""Records on their way out, gathered into one batch after another per partition. Decides, does no I/O, reads no clock.

Each partition has a lane: an open batch that still takes records, full ones queued before it, and at most one in
flight. One in flight keeps a partition's records in order through every retry, whatever the broker remembers; lanes do
not wait for each other.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from tidelog.records.build import append_record, seal_batch
from tidelog.records.header import MAGIC_V2, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from tidelog.records.record import iter_records
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, ProducerId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.records.compression import Codec
    from tidelog.records.record import RecordHeaders

T = TypeVar("T")


class ProducerIdentity(NamedTuple):
    producer_id: ProducerId
    epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, -1)


class Batch(Generic[T]):
    """Records of one partition that are sent, and succeed or fail, together. A token is kept for each record."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "base_timestamp",
        "body",
        "created_s",
        "identity",
        "max_timestamp",
        "maybe_stored",
        "not_before_s",
        "partition",
        "sealed",
        "tokens",
        "transactional",
    )

    open: ClassVar[bool] = True
    """Whether it takes further records."""

    def __init__(self, partition: TopicPartition, created_s: float, base_timestamp: int) -> None:
        self.partition = partition
        self.created_s = created_s
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.body = bytearray()
        self.tokens: list[T] = []
        self.attempts = 0
        self.not_before_s = 0.0
        self.maybe_stored = False
        """An attempt ended without an answer: the broker may have it already."""
        self.identity: ProducerIdentity | None = None
        self.base_sequence = NO_SEQUENCE
        self.transactional = False
        self.sealed: bytearray | None = None

    @property
    def record_count(self) -> int:
        return len(self.tokens)

    @property
    def size(self) -> int:
        return len(self.body)

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: RecordHeaders, token: T) -> None:
        append_record(self.body, len(self.tokens), timestamp - self.base_timestamp, key, value, headers=headers)
        self.tokens.append(token)
        if timestamp > self.max_timestamp:  # noqa: PLR1730 - a call of max() for every record shows
            self.max_timestamp = timestamp

    def seal(self, codec: Codec) -> bytearray:
        """The batch's bytes. A retry sends the same ones: that is how the broker knows it for a repetition."""
        if self.sealed is None:
            identity = self.identity or NO_IDENTITY
            self.sealed = seal_batch(self._header(identity), self.body, codec)
        return self.sealed

    def _header(self, identity: ProducerIdentity) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_V2,
            crc=0,
            attributes=TRANSACTIONAL_BIT if self.transactional else 0,
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.base_sequence,
            record_count=self.record_count,
        )

    def halves(self) -> tuple[Batch[T], Batch[T]]:
        """The same records as two batches, for a broker that found the one too large."""
        assert self.record_count > 1
        middle = self.record_count // 2
        parts: tuple[Batch[T], Batch[T]] = (self._empty_copy(), self._empty_copy())
        for record in iter_records(seal_batch(self._header(NO_IDENTITY), self.body)):
            part = parts[record.offset >= middle]
            part.add(record.timestamp, record.key, record.value, record.headers, self.tokens[record.offset])
        return parts

    def _empty_copy(self) -> Batch[T]:
        return Batch(self.partition, self.created_s, self.base_timestamp)


class _Lane(Generic[T]):
    __slots__ = ("identity", "in_flight", "next_sequence", "queue")

    def __init__(self) -> None:
        self.queue: deque[Batch[T]] = deque()
        self.in_flight: Batch[T] | None = None
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0


class Accumulator(Generic[T]):
    """All lanes of one producer. Times are seconds on one clock that the caller reads."""

    def __init__(self, *, batch_bytes: int, linger_s: float, buffer_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._buffer_bytes = buffer_bytes
        self._used_bytes = 0
        self._lanes: dict[TopicPartition, _Lane[T]] = {}
        self._busy: dict[TopicPartition, _Lane[T]] = {}
        """The lanes that hold a batch, queued or in flight."""
        self.flushing = False
        """Nothing lingers: every batch goes out as soon as its lane is free."""
        self.identity_spent = False
        """A lane can no longer tell which sequence comes next: `take` must be given a fresh identity from now on."""

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def empty(self) -> bool:
        return not self._busy

    def has_room(self, size: int) -> bool:
        """Also true for a record larger than the whole buffer once the buffer is empty, or it could never be sent."""
        return self._used_bytes + size <= self._buffer_bytes or self._used_bytes == 0

    def room_in_batch(self, partition: TopicPartition, size: int) -> bool:
        """Whether the partition's open batch takes a record of `size` bytes, or there is none to be full."""
        lane = self._lanes.get(partition)
        return lane is None or not lane.queue or self._takes(lane.queue[-1], size)

    def add(
        self,
        partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: RecordHeaders,
        token: T,
        now_s: float,
        size: int,
    ) -> bool:
        """Takes a record of at most `size` bytes in; true when that changes what is ready, now or later."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane()
        queue = lane.queue
        opened = not queue or not self._takes(queue[-1], size)
        if opened:
            queue.append(Batch(partition, now_s, timestamp))
            self._busy[partition] = lane
        batch = queue[-1]
        before = len(batch.body)
        batch.add(timestamp, key, value, headers, token)
        after = len(batch.body)
        self._used_bytes += after - before
        return opened or after >= self._batch_bytes > before

    def add_batch(self, batch: Batch[T]) -> None:
        """Takes in a whole batch, which follows what waits for its partition already."""
        lane = self._lanes.setdefault(batch.partition, _Lane())
        lane.queue.append(batch)
        self._busy[batch.partition] = lane
        self._used_bytes += batch.size

    def ready(self, now_s: float) -> list[TopicPartition]:
        """The partitions whose next batch may go out now, the longest waiting first."""
        found = [
            (lane.queue[0].created_s, partition)
            for partition, lane in self._busy.items()
            if lane.in_flight is None and lane.queue and self._ready_at(lane, now_s) <= now_s
        ]
        found.sort(key=lambda item: item[0])
        return [partition for _, partition in found]

    def next_ready_s(self, now_s: float) -> float | None:
        """When a further partition becomes ready without any call; None if that will not happen."""
        times = (self._ready_at(lane, now_s) for lane in self._busy.values() if lane.in_flight is None and lane.queue)
        return min((time_s for time_s in times if time_s > now_s), default=None)

    def peek(self, partition: TopicPartition) -> Batch[T]:
        return self._lanes[partition].queue[0]

    def take(
        self, partition: TopicPartition, identity: ProducerIdentity | None, *, transactional: bool = False
    ) -> Batch[T]:
        """The next batch, now in flight. A new one gets `identity` and the next sequence; a retry keeps its own."""
        lane = self._lanes[partition]
        assert lane.in_flight is None, f"{partition} already has a batch in flight"
        batch = lane.in_flight = lane.queue.popleft()
        batch.attempts += 1
        if identity is not None and batch.identity is None:
            if lane.identity != identity:
                lane.identity, lane.next_sequence = identity, 0
            batch.identity, batch.base_sequence = identity, lane.next_sequence
            batch.transactional = transactional
        return batch

    def succeeded(self, batch: Batch[T]) -> None:
        lane = self._landed(batch)
        if batch.identity is not None and batch.identity == lane.identity:
            lane.next_sequence = (batch.base_sequence + batch.record_count) & 0x7FFF_FFFF
        self._release(lane, batch)

    def failed(self, batch: Batch[T]) -> None:
        """Gives the batch up. What may be stored all the same has used its sequences: the lane needs a new identity."""
        lane = self._landed(batch)
        if batch.maybe_stored and batch.identity is not None:
            lane.identity = None
            self.identity_spent = True
        self._release(lane, batch)

    def retry(self, batch: Batch[T], not_before_s: float, *, renew: bool = False) -> None:
        """Puts the batch back at the head of its lane; `renew`: under a new identity, for the old one is unknown."""
        lane = self._landed(batch)
        batch.not_before_s = not_before_s
        if renew:
            batch.identity, batch.base_sequence, batch.sealed = None, NO_SEQUENCE, None
            lane.identity = None
            self.identity_spent = True
        lane.queue.appendleft(batch)

    def split(self, batch: Batch[T]) -> None:
        """Puts the batch back as two smaller ones, in order. Nothing of it was stored."""
        lane = self._landed(batch)
        first, second = batch.halves()
        lane.queue.appendleft(second)
        lane.queue.appendleft(first)
        self._used_bytes += first.size + second.size - batch.size

    def holds(self, partition: TopicPartition) -> bool:
        """Whether there are records of the partition that are not settled."""
        return partition in self._busy

    def next_sequence(self, partition: TopicPartition, identity: ProducerIdentity) -> int:
        """What the next record of the partition will be numbered; all before it must be settled."""
        assert partition not in self._busy, f"{partition} has records that are not settled"
        lane = self._lanes.get(partition)
        return lane.next_sequence if lane is not None and lane.identity == identity else 0

    def resume(self, partition: TopicPartition, identity: ProducerIdentity, next_sequence: int) -> None:
        """Goes on where somebody else with the same identity has stopped."""
        assert partition not in self._busy, f"{partition} has records that are not settled"
        lane = self._lanes.setdefault(partition, _Lane())
        lane.identity, lane.next_sequence = identity, next_sequence

    def give_up_waiting(self) -> list[Batch[T]]:
        """Removes and gives every batch that is not in flight."""
        given_up: list[Batch[T]] = []
        for lane in list(self._busy.values()):
            in_flight, lane.in_flight = lane.in_flight, None
            while lane.queue:
                batch = lane.in_flight = lane.queue.popleft()
                self.failed(batch)
                given_up.append(batch)
            lane.in_flight = in_flight
            if in_flight is not None:
                self._busy[in_flight.partition] = lane
        return given_up

    def expire(self, created_before_s: float) -> list[Batch[T]]:
        """Removes and gives the waiting batches that are older; those in flight are for their answer to decide."""
        expired: list[Batch[T]] = []
        for lane in list(self._busy.values()):
            while lane.in_flight is None and lane.queue and lane.queue[0].created_s <= created_before_s:
                batch = lane.in_flight = lane.queue.popleft()
                self.failed(batch)
                expired.append(batch)
        return expired

    def oldest_s(self) -> float | None:
        """When the longest waiting of the batches that could be in flight was begun."""
        waiting = (lane for lane in self._busy.values() if lane.in_flight is None and lane.queue)
        return min((lane.queue[0].created_s for lane in waiting), default=None)

    def last_tokens(self) -> list[T]:
        """One for each batch: when all of them are settled, so is every record taken in so far."""
        lanes = self._busy.values()
        flying = [lane.in_flight.tokens[-1] for lane in lanes if lane.in_flight is not None]
        return flying + [batch.tokens[-1] for lane in lanes for batch in lane.queue]

    def drain(self) -> Iterator[Batch[T]]:
        """Removes and gives every batch, also those in flight: the producer is going away."""
        for lane in self._busy.values():
            if lane.in_flight is not None:
                yield lane.in_flight
            yield from lane.queue
        self._lanes.clear()
        self._busy.clear()
        self._used_bytes = 0

    def _takes(self, batch: Batch[T], size: int) -> bool:
        if not batch.open or batch.attempts:
            return False
        return len(batch.body) + size <= self._batch_bytes or batch.record_count == 0

    def _ready_at(self, lane: _Lane[T], now_s: float) -> float:
        head = lane.queue[0]
        full = len(lane.queue) > 1 or head.size >= self._batch_bytes or head.attempts > 0 or not head.open
        if full or self.flushing or self._used_bytes >= self._buffer_bytes // 2:
            return max(head.not_before_s, min(now_s, head.created_s))
        return max(head.not_before_s, head.created_s + self._linger_s)

    def _landed(self, batch: Batch[T]) -> _Lane[T]:
        lane = self._lanes[batch.partition]
        assert lane.in_flight is batch, f"{batch.partition}: the batch is not the one in flight"
        lane.in_flight = None
        return lane

    def _release(self, lane: _Lane[T], batch: Batch[T]) -> None:
        self._used_bytes -= batch.size
        if not lane.queue:
            self._busy.pop(batch.partition, None)
