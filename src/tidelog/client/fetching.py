"""What a consumer holds of each partition, and which fetches to send next. Decides, does no I/O, reads no clock.

Each broker has at most one fetch in flight. A partition is left out of it while two answers of it wait for the
application: one being read, one ahead. That bounds the memory and still keeps the network busy. Over all partitions,
nothing is fetched while more bytes or records wait than the settings allow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple

from tidelog.client.divergence import UNKNOWN
from tidelog.errors import BrokerError
from tidelog.records.control import read_marker
from tidelog.records.header import CorruptBatch, crc_ok
from tidelog.records.record import Batch, RecordHeaders, iter_batches
from tidelog.records.rows import read_rows
from tidelog.types import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from typing_extensions import TypeVar

    from tidelog.client.offsets import OffsetSpec
else:
    from typing import TypeVar

NEVER_S = float("inf")
"""As a time: not until the application seeks elsewhere."""

_ANSWERS_AHEAD_MAX = 2


if TYPE_CHECKING:
    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    K, V = TypeVar("K"), TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
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
        self.ask_group = False
        """Where to begin is what the group committed, which has to be asked first."""
        self.locating = False
        """Somebody is asking already."""
        self.position_epoch = UNKNOWN
        """Under which leader the last record before the position was written, as far as it is known."""
        self.fetch_epoch = UNKNOWN
        """The same of `fetch_offset`."""
        self.checked_epoch = UNKNOWN
        """The leader of this epoch has all that was fetched."""
        self.doubted = False
        """The leader is a later one, which has to be asked first."""
        self.checking = False
        """Somebody is asking already."""
        self.paused = False
        """The application does not want any of it for now; what is here already stays."""
        self.preferred: tuple[BrokerId, float] | None = None
        """A replica that is nearer than the leader, and until when to believe so (KIP-392)."""
        self.generation = 0
        """Rises with every seek, so that the answer to an earlier fetch can be told apart."""
        self.high_watermark: Offset | None = None
        self.last_stable_offset: Offset | None = None
        self.not_before_s = 0.0
        self.failures = 0
        self._check_crcs = check_crcs
        self._answers: deque[deque[Batch]] = deque()
        self._decoded: deque[ConsumerRecord] = deque()
        self._held_bytes = 0
        self._held_records = 0

    def seek(self, offset: Offset, epoch: int = UNKNOWN, *, checked_epoch: int = UNKNOWN) -> None:
        """With the epoch of the record before `offset`, if it is known, that is looked for before anything is read."""
        self.position = self.fetch_offset = offset
        self.lost, self.ask_group = None, False
        self._forget()
        self.position_epoch = self.fetch_epoch = epoch
        self.checked_epoch = checked_epoch

    def seek_to_commit(self) -> None:
        self.lost, self.ask_group = None, True
        self._forget()

    def lose(self, spec: OffsetSpec) -> None:
        """The position has to be found by asking for `spec`."""
        self.lost, self.ask_group = spec, False
        self._forget()

    def doubt(self, leader_epoch: int) -> None:
        """What was read under an earlier leader may not be in the log of this one."""
        if self.located and self.fetch_epoch != UNKNOWN and leader_epoch > max(self.checked_epoch, self.fetch_epoch):
            self.doubted = True

    def trust(self, leader_epoch: int) -> None:
        self.checked_epoch = max(self.checked_epoch, leader_epoch)
        self.doubted = False

    def drop_ahead(self, checked_epoch: int = UNKNOWN) -> None:
        """Fetches again what the application was not given yet."""
        self.seek(self.position, self.position_epoch, checked_epoch=checked_epoch)

    def _forget(self) -> None:
        self.generation += 1
        self.failures, self.not_before_s = 0, 0.0
        self.preferred = None
        self.position_epoch = self.fetch_epoch = self.checked_epoch = UNKNOWN
        self.doubted = False
        self._answers.clear()
        self._decoded.clear()
        self._held_bytes = self._held_records = 0

    @property
    def located(self) -> bool:
        return self.lost is None and not self.ask_group

    @property
    def fetchable(self) -> bool:
        if not self.located or self.paused or self.doubted:
            return False
        return len(self._answers) + bool(self._decoded) < _ANSWERS_AHEAD_MAX

    @property
    def waiting(self) -> bool:
        """Whether `take` has something to look at."""
        return bool(self._decoded or self._answers)

    @property
    def readable(self) -> bool:
        """Whether the application may be given something of what waits."""
        return not self.paused and bool(self._decoded or self._answers)

    @property
    def held_bytes(self) -> int:
        """Of batches, as they came, that have not been taken apart yet."""
        return self._held_bytes

    @property
    def held_records(self) -> int:
        """That wait for the application; of batches not taken apart yet, by what they say."""
        return self._held_records + len(self._decoded)

    def add(
        self, records: memoryview, aborted: Sequence[tuple[int, int]] | None = None, leader_epoch: int = UNKNOWN
    ) -> bool:
        """Takes the records of a fetch in; false if there is not one whole batch of them.

        `aborted` holds producer and first offset of the transactions whose records are not to be shown. The leader of
        `leader_epoch` has given them.
        """
        batches = deque(iter_batches(records))
        if not batches:
            return False
        self.fetch_offset = max(self.fetch_offset, batches[-1].header.next_offset)
        self.fetch_epoch = batches[-1].header.leader_epoch
        self.checked_epoch = max(self.checked_epoch, leader_epoch)
        if aborted:
            batches = _without_aborted(batches, aborted)
        if batches:
            self._answers.append(batches)
            self._held_bytes += sum(len(batch.data) for batch in batches)
            self._held_records += sum(batch.header.record_count for batch in batches)
        elif not self.waiting:
            self._pass_all()
        return True

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` records in order; moves the position. May be empty where only markers were stored."""
        taken: list[ConsumerRecord] = []
        while len(taken) < count and self.waiting:
            if not self._decoded:
                try:
                    self._decode_next()
                except BrokerError:
                    if taken:
                        break  # it will be said again when the application has these
                    raise
            room = count - len(taken)
            if room >= len(self._decoded):
                taken += self._decoded
                self._decoded.clear()
            else:
                taken += [self._decoded.popleft() for _ in range(room)]
            if self._decoded:
                self.position = Offset(self._decoded[0].offset)
            elif not self._answers:
                self._pass_all()
            elif taken:
                self.position = Offset(taken[-1].offset + 1)
        return taken

    def take_back(self, records: Iterable[ConsumerRecord]) -> None:
        """Records taken last, which the application was not given after all."""
        self._decoded.extendleft(reversed(list(records)))
        if self._decoded:
            self.position = Offset(self._decoded[0].offset)

    def take_single(self) -> list[ConsumerRecord]:
        """The rest of a batch that was begun; moves the position."""
        return self.take(len(self._decoded))

    def take_batches(self, read: Callable[[memoryview, Offset], object], full: Callable[[], bool]) -> None:
        """Has `read` read batch after batch, each from an offset on, until `full`; moves the position past them.

        Records that were taken apart already must have been taken before.
        """
        assert not self._decoded, f"{self.partition}: single records wait before the next batch"
        begin = self.position
        while self._answers and not full():
            try:
                header, data = self._next_batch()
                if not header.control:
                    read(data, self.position)
            except BrokerError:
                if self.position > begin:
                    break  # it will be said again when the application has these
                raise
            self._drop_batch()
            self.position = max(self.position, header.next_offset)
            self.position_epoch = header.leader_epoch
            if not self._answers:
                self._pass_all()

    def _pass_all(self) -> None:
        self.position, self.position_epoch = self.fetch_offset, self.fetch_epoch

    def _decode_next(self) -> None:
        header, data = self._next_batch()
        if not header.control:
            self._decoded.extend(read_rows(data, ConsumerRecord, self.partition, first_offset=self.position))
        self.position_epoch = header.leader_epoch
        self._drop_batch()

    def _next_batch(self) -> Batch:
        header, data = batch = self._answers[0][0]
        if self._check_crcs and not crc_ok(data, 0, len(data)):
            raise CorruptBatch(
                f"{self.partition}: the batch at offset {header.base_offset} is damaged (its CRC-32C does not match); "
                f"seek past offset {header.last_offset} to skip it"
            )
        return batch

    def _drop_batch(self) -> None:
        batches = self._answers[0]
        header, data = batches.popleft()
        self._held_bytes -= len(data)
        self._held_records -= header.record_count
        if not batches:
            self._answers.popleft()


def _without_aborted(batches: Iterable[Batch], aborted: Sequence[tuple[int, int]]) -> deque[Batch]:
    """A transaction ends with its marker: what the same producer writes after it is another matter.

    Every answer tells of all aborted transactions that it touches, also of those that began long before.
    """
    begins = deque(sorted((first_offset, producer_id) for producer_id, first_offset in aborted))
    aborting: set[int] = set()
    kept: deque[Batch] = deque()
    for batch in batches:
        header = batch.header
        while begins and begins[0][0] <= header.last_offset:
            aborting.add(begins.popleft()[1])
        if header.control:
            marker = read_marker(batch.data)
            if marker is not None and not marker.committed:
                aborting.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in aborting):
            kept.append(batch)
    return kept


class FetchPlan(NamedTuple):
    """One fetch to send."""

    broker: BrokerId
    buffers: tuple[PartitionBuffer, ...]
    partial: bool
    """Some of the broker's partitions are left out: do not let it hold the answer back, they may be due any moment."""


class FetchPlanner:
    def __init__(self, rest_s: float, *, bytes_max: float = NEVER_S, records_max: float = NEVER_S) -> None:
        self.full = False
        """The last plan left everything out because enough waits for the application."""
        self._rest_s = rest_s
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._busy: set[BrokerId] = set()
        self._resting: dict[BrokerId, tuple[float, frozenset[TopicPartition]]] = {}

    def plan(
        self,
        buffers: Collection[PartitionBuffer],
        leader_of: Callable[[TopicPartition], BrokerId | None],
        now_s: float,
    ) -> list[FetchPlan]:
        """The fetches to send now. Each must be reported as `finished` later."""
        due: dict[BrokerId, list[PartitionBuffer]] = {}
        partial: set[BrokerId] = set()
        self.full = self._is_full(buffers)
        if self.full:
            return []
        for buffer in buffers:
            source = leader_of(buffer.partition)
            if buffer.preferred is not None and now_s < buffer.preferred[1]:
                source = buffer.preferred[0]
            if source is None or source in self._busy:
                continue
            if buffer.fetchable and buffer.not_before_s <= now_s:
                due.setdefault(source, []).append(buffer)
            elif not buffer.paused and buffer.not_before_s < NEVER_S:
                partial.add(source)
        plans = [
            FetchPlan(broker, tuple(chosen), broker in partial)
            for broker, chosen in due.items()
            if not self._rests(broker, chosen, now_s)
        ]
        self._busy.update(plan.broker for plan in plans)
        return plans

    def room_bytes(self, buffers: Iterable[PartitionBuffer]) -> float:
        """How much more may be asked for."""
        return max(1, self._bytes_max - sum(buffer.held_bytes for buffer in buffers))

    def _is_full(self, buffers: Collection[PartitionBuffer]) -> bool:
        # What waits in paused partitions must not keep the others from being read.
        if not any(buffer.readable for buffer in buffers):
            return False
        held_bytes = sum(buffer.held_bytes for buffer in buffers)
        held_records = sum(buffer.held_records for buffer in buffers)
        return held_bytes >= self._bytes_max or held_records >= self._records_max

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
