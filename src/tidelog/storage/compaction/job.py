"""What a cleaning is told, and what it tells: plain data that can go to another process and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tidelog.storage.aborted_index import AbortedEntry
from tidelog.storage.compaction.choosing import SegmentFacts

if TYPE_CHECKING:
    from collections.abc import Mapping


class Limits(NamedTuple):
    """What one cleaning may use."""

    map_bytes: int
    buffer_bytes: int
    """Each for reading and for writing."""
    bytes_per_s: float


class CleaningJob(NamedTuple):
    directory: str
    segments: list[SegmentFacts]
    """Closed ones up to `upper`, oldest first."""
    first_dirty: int
    upper: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    last_offset_of_producers: dict[int, int]
    """Of each idempotent producer the last offset of its last batch, which must not vanish."""
    epoch_of_producers: dict[int, int]
    """Of those of whom only markers are left to tell the epoch."""
    aborted: list[AbortedEntry]
    """Transactions that begin before `upper`, by their markers, of which some may lie beyond."""
    limits: Limits

    def to_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "last_offset_of_producers": list(self.last_offset_of_producers.items()),
            "epoch_of_producers": list(self.epoch_of_producers.items()),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            **{
                **fields,
                "segments": [SegmentFacts(*each) for each in fields["segments"]],
                "last_offset_of_producers": dict(fields["last_offset_of_producers"]),
                "epoch_of_producers": dict(fields["epoch_of_producers"]),
                "aborted": [AbortedEntry(*each) for each in fields["aborted"]],
                "limits": Limits(*fields["limits"]),
            }
        )


class Mapped(NamedTuple):
    """The dirty part has been looked at, up to `end_offset`. `groups` holds base offsets: each becomes one segment."""

    end_offset: int
    keys: int
    records: int
    keyless: int
    """Records that go because they have no key."""
    groups: list[list[int]]


class Cleaned(NamedTuple):
    """One group has become one segment, whose files lie beside the old ones under other names."""

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int
    aborted_bytes: int
    bytes_read: int
    batches_kept: int
    records_kept: int
