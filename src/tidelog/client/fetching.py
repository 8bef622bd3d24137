"""What a consumer holds of each partition, and which fetches to send next. Decides, does no I/O, reads no clock.

Each broker has at most one fetch in flight. A partition is left out of it while two answers of it wait for the
application: one being read, one ahead. That bounds the memory and still keeps the network busy.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.header import CorruptBatch, crc_ok
from tidelog.records.record import Batch, RecordHeaders, iter_batches, iter_records
from tidelog.types import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.client.offsets import OffsetSpec

NEVER_S = float("inf")
"""As a time: not until the application seeks elsewhere."""

_ANSWERS_AHEAD_MAX = 2


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class PartitionBuffer:
    """One assigned partition: what was fetched of it and not read yet, and where to go on."""

    def __init__(self, partition: TopicPartition, *, check_crcs: bool) -> None:
        self.partition = partition
        self.position = Offset(-1)
        """The next offset that the application will be given."""
        self.fetch_offset = Offset(-1)
        """The next offset to ask the broker for."""
        self.lost: OffsetSpec | None = None
        """Where to begin is not known yet: this has to be asked first."""
        self.generation = 0
        """Rises with every seek, so that the answer to an earlier fetch can be told apart."""
        self.high_watermark: Offset | None = None
        self.not_before_s = 0.0
        self.failures = 0
        self._check_crcs = check_crcs
        self._answers: deque[deque[Batch]] = deque()
        self._decoded: deque[ConsumerRecord] = deque()

    def seek(self, offset: Offset) -> None:
        self.position = self.fetch_offset = offset
        self.lost = None
        self._forget()

    def lose(self, spec: OffsetSpec) -> None:
        """The position has to be found by asking for `spec`."""
        self.lost = spec
        self._forget()

    def _forget(self) -> None:
        self.generation += 1
        self.failures, self.not_before_s = 0, 0.0
        self._answers.clear()
        self._decoded.clear()

    @property
    def fetchable(self) -> bool:
        return self.lost is None and len(self._answers) + bool(self._decoded) < _ANSWERS_AHEAD_MAX

    @property
    def waiting(self) -> bool:
        """Whether `take` has something to look at."""
        return bool(self._decoded or self._answers)

    def add(self, records: memoryview) -> bool:
        """Takes the records of a fetch in; false if there is not one whole batch of them."""
        batches = deque(iter_batches(records))
        if not batches:
            return False
        self.fetch_offset = max(self.fetch_offset, batches[-1].header.next_offset)
        self._answers.append(batches)
        return True

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` records in order; moves the position. May be empty where only markers were stored."""
        taken: list[ConsumerRecord] = []
        while len(taken) < count and self.waiting:
            if not self._decoded:
                self._decode_next()
            room = count - len(taken)
            if room >= len(self._decoded):
                taken += self._decoded
                self._decoded.clear()
            else:
                taken += [self._decoded.popleft() for _ in range(room)]
            if self._decoded:
                self.position = Offset(self._decoded[0].offset)
            elif not self._answers:
                self.position = self.fetch_offset
            elif taken:
                self.position = Offset(taken[-1].offset + 1)
        return taken

    def _decode_next(self) -> None:
        batches = self._answers[0]
        header, data = batches[0]
        if self._check_crcs and not crc_ok(data, 0, len(data)):
            raise CorruptBatch(
                f"{self.partition}: the batch at offset {header.base_offset} is damaged (its CRC-32C does not match); "
                f"seek past offset {header.last_offset} to skip it"
            )
        if not header.control:
            topic, partition = self.partition
            new, start = tuple.__new__, self.position
            self._decoded.extend(
                [
                    new(ConsumerRecord, (topic, partition, *record))
                    for record in iter_records(data)
                    if record.offset >= start
                ]
            )
        batches.popleft()
        if not batches:
            self._answers.popleft()


class FetchPlan(NamedTuple):
    """One fetch to send."""

    broker: BrokerId
    buffers: tuple[PartitionBuffer, ...]
    partial: bool
    """Some of the broker's partitions are left out: do not let it hold the answer back, they may be due any moment."""


class FetchPlanner:
    def __init__(self, rest_s: float) -> None:
        self._rest_s = rest_s
        self._busy: set[BrokerId] = set()
        self._resting: dict[BrokerId, tuple[float, frozenset[TopicPartition]]] = {}

    def plan(
        self,
        buffers: Iterable[PartitionBuffer],
        leader_of: Callable[[TopicPartition], BrokerId | None],
        now_s: float,
    ) -> list[FetchPlan]:
        """The fetches to send now. Each must be reported as `finished` later."""
        due: dict[BrokerId, list[PartitionBuffer]] = {}
        partial: set[BrokerId] = set()
        for buffer in buffers:
            leader = leader_of(buffer.partition)
            if leader is None or leader in self._busy:
                continue
            if buffer.fetchable and buffer.not_before_s <= now_s:
                due.setdefault(leader, []).append(buffer)
            else:
                partial.add(leader)
        plans = [
            FetchPlan(broker, tuple(chosen), broker in partial)
            for broker, chosen in due.items()
            if not self._rests(broker, chosen, now_s)
        ]
        self._busy.update(plan.broker for plan in plans)
        return plans

    def finished(self, plan: FetchPlan, *, empty: bool, now_s: float) -> None:
        self._busy.discard(plan.broker)
        if plan.partial and empty:
            # It was answered at once, so asking the same again at once would never end.
            self._resting[plan.broker] = (now_s + self._rest_s, frozenset(b.partition for b in plan.buffers))
        else:
            self._resting.pop(plan.broker, None)

    def next_due_s(self, buffers: Iterable[PartitionBuffer], now_s: float) -> float | None:
        """When `plan` will have more to say without anything else happening."""
        times = [until_s for until_s, _ in self._resting.values() if until_s > now_s]
        times += [buffer.not_before_s for buffer in buffers if now_s < buffer.not_before_s < NEVER_S]
        return min(times, default=None)

    def _rests(self, broker: BrokerId, chosen: list[PartitionBuffer], now_s: float) -> bool:
        until_s, partitions = self._resting.get(broker, (0.0, frozenset()))
        return now_s < until_s and partitions == {buffer.partition for buffer in chosen}
