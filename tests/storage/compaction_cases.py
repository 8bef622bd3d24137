"""What the tests of compaction share: keyed batches, whole cleanings, and what should be left after one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from storage_cases import ALL, NOW_MS, append

from tidelog.config.topic import TopicConfig
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.storage.compaction import ticket as tickets
from tidelog.storage.compaction.cleaning import Cleaning
from tidelog.storage.compaction.job import Cleaned, Limits, Mapped
from tidelog.storage.compaction.throttle import Throttle
from tidelog.types import ProducerId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.storage.log import Log

Pair = tuple[bytes | None, bytes | None]

COMPACTED = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=2000,
    index_interval_bytes=150,
    delete_retention_ms=1000,
    file_delete_delay_ms=1000,
)
AMPLE = Limits(map_bytes=1 << 20, buffer_bytes=4096, bytes_per_s=1e18)


class StandingClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


UNTHROTTLED = Throttle(1e18, StandingClock())


class Found(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def keyed(
    pairs: Iterable[Pair],
    *,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    **options: Any,
) -> memoryview:
    records = [Record(at, timestamp + at, key, value) for at, (key, value) in enumerate(pairs)]
    return memoryview(
        build_batch(
            records,
            codec=codec,
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
            **options,
        )
    )


def put(log: Log, *pairs: Pair, **options: Any) -> int:
    """Append one batch; gives its base offset."""
    return append(log, keyed(pairs, **options)).base_offset


def close_segment(log: Log) -> None:
    """What was appended so far can be cleaned."""
    log.roll(NOW_MS)
    log.flush()


def clean(log: Log, now_ms: int = NOW_MS, limits: Limits = AMPLE) -> Mapped:
    """A whole cleaning, all on one thread, of a log whose only replica this is."""
    log.producers.transactions.settle(log.flushed_offset)
    ticket = tickets.take(log, log.log_end_offset, now_ms, limits)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    mapped = cleaning.map_dirty()
    for group in mapped.groups:
        swap_in(log, ticket, cleaning, group)
    tickets.settle(log, ticket, mapped.end_offset)
    return mapped


def swap_in(log: Log, ticket: tickets.CleaningTicket, cleaning: Cleaning, group: list[int]) -> Cleaned | None:
    cleaned = cleaning.clean(group)
    if cleaned is not None:
        assert log.put_cleaned(ticket, group, cleaned)
        log.room.fs.sync_dir(log.directory)
    return cleaned


def read_all(log: Log) -> list[Found]:
    at = log.log_start_offset
    found: list[Found] = []
    while (piece := log.read(at, ALL, ALL, True)) is not None:
        for _, batch in iter_batches(piece.slice.read()):
            found += [Found(*record[:4]) for record in iter_records(batch)]
        at = piece.next_offset
    assert at == log.log_end_offset or not found, "reading reaches the end"
    return found


def newest(records: Iterable[Found]) -> list[Found]:
    """The model: of each key the last record, in order."""
    last: dict[bytes | None, Found] = {}
    for record in records:
        last.pop(record.key, None)
        last[record.key] = record
    return sorted(last.values())
