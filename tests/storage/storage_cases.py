"""What the tests of this room share: a disk of either kind, a clock that stands still, batches, stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.config.topic import TopicConfig
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.header import BatchHeader, peek
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.storage.store import LogStore
from tidelog.storage.verification import TRUSTED, Guard
from tidelog.types import ProducerId, TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.storage.fs import Filesystem
    from tidelog.storage.log import Appended, Log

TP = TopicPartition("orders", 0)
TOPIC_ID = TopicId(bytes(range(16)))
NOW_MS = 1_700_000_000_000
ALL = 2**62
"""More than any log holds."""


@dataclass
class ManualClock:
    at_ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic(self) -> float:
        return self.at_ms / 1000


@dataclass
class Disk:
    """A file system and a place on it."""

    fs: Filesystem
    root: str
    clock: ManualClock = field(default_factory=ManualClock)

    @property
    def partition(self) -> str:
        return f"{self.root}/{TP}"

    def open_store(self, config: TopicConfig | None = None, **options: Any) -> LogStore:
        settings = {"open_files_max": 16, "recovery_threads": 1, **options}
        store = LogStore([self.root], self.fs, self.clock, **settings)
        store.lock()
        store.open(lambda _topic: config or TopicConfig())
        return store

    def open_log(self, config: TopicConfig | None = None, **options: Any) -> Log:
        """The one log of a store of its own, created if it is not there."""
        store = self.open_store(config, **options)
        return store.logs.get(TP) or store.create(TP, TOPIC_ID, config or TopicConfig())

    def files(self, suffix: str = "") -> list[str]:
        return sorted(each.name for each in self.fs.scan(self.partition) if each.name.endswith(suffix))

    def content(self, name: str) -> bytes:
        file = self.fs.open(f"{self.partition}/{name}")
        return file.pread(file.size(), 0)

    def overwrite(self, name: str, data: bytes) -> None:
        """Put `data` in place of a file of the partition, and make it stay."""
        file = self.fs.open(f"{self.partition}/{name}", create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
        self.fs.sync_dir(self.partition)


def batch_of(
    values: Iterable[bytes] = (b"v",),
    *,
    timestamp: int = NOW_MS,
    step_ms: int = 1,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamps: list[int] | None = None,
    transactional: bool = False,
) -> memoryview:
    """What a producer would send, or, with an offset and a leader epoch, what a leader has stored."""
    records = [
        Record(base_offset + at, timestamps[at] if timestamps else timestamp + at * step_ms, b"k", value)
        for at, value in enumerate(values)
    ]
    batch = build_batch(
        records,
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=epoch,
        base_sequence=sequence,
        leader_epoch=leader_epoch,  # type: ignore[arg-type]  # a plain number reads better in tests
        transactional=transactional,
    )
    return memoryview(batch)


def append(
    log: Log, batch: memoryview, *, leader_epoch: int = 0, now_ms: int = NOW_MS, guard: Guard | None = TRUSTED
) -> Appended:
    return log.append(batch, peek(batch), leader_epoch, now_ms, guard)


def append_values(log: Log, *values: bytes, **options: Any) -> Appended:
    return append(log, batch_of(values, **options))


def produce(log: Log, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> Appended:
    """One idempotent batch of `count` records, whose values name their sequences."""
    values = [b"%d" % ((sequence + at) % 2**31) for at in range(count)]
    return append(log, batch_of(values, producer_id=producer_id, epoch=epoch, sequence=sequence))


def read_bytes(log: Log, offset: int, max_bytes: int = ALL, upto: int = ALL, *, min_one: bool = True) -> bytes:
    found = log.read(offset, max_bytes, upto, min_one)
    return b"" if found is None else found.slice.read()


def read_headers(log: Log, offset: int | None = None, max_bytes: int = ALL) -> list[BatchHeader]:
    """All batches from `offset` on, across segments."""
    at = log.log_start_offset if offset is None else offset
    found: list[BatchHeader] = []
    while (piece := log.read(at, max_bytes, ALL, True)) is not None:
        batches = [header for header, _ in iter_batches(piece.slice.read())]
        assert sum(each.size for each in batches) == piece.slice.size, "only whole batches are given"
        assert batches[0].base_offset == piece.first_offset
        assert batches[-1].next_offset <= piece.next_offset
        found += batches
        at = piece.next_offset
    return found


def read_values(log: Log, offset: int | None = None) -> list[bytes | None]:
    """Every record's value from `offset` on."""
    at = log.log_start_offset if offset is None else offset
    start = at
    values: list[bytes | None] = []
    while (piece := log.read(at, ALL, ALL, True)) is not None:
        for _, batch in iter_batches(piece.slice.read()):
            values += [record.value for record in iter_records(batch) if record.offset >= start]
        at = piece.next_offset
    return values
