"""Which log is to be cleaned, from where to where, and which segments become one. PURE: figures in, a choice out.

A log is clean up to some offset; what follows is dirty, and what lies in closed segments below the safe offset can be
cleaned. The dirtiest log goes first, by the share of bytes that are dirty. `max.compaction.lag.ms` overrules the share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.segment import SEGMENT_BYTES_MAX
from tidelog.storage.walk import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeVar

    from tidelog.config.topic import TopicConfig

    Named = TypeVar("Named")


class SegmentFacts(NamedTuple):
    """A closed segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int
    """Of the larger one of its two indexes."""
    largest_timestamp_ms: int = -1
    first_timestamp_ms: int = -1


class Cleanable(NamedTuple):
    """`first_dirty` to `upper` is what a cleaning would look at; `upper` is where a segment starts."""

    first_dirty: int
    upper: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether `max.compaction.lag.ms` has passed for some of it."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)


def cleanable(
    segments: Sequence[SegmentFacts],
    config: TopicConfig,
    *,
    clean_offset: int,
    log_start_offset: int,
    log_end_offset: int,
    upto: int,
    now_ms: int,
) -> Cleanable:
    """`segments` are all closed ones, oldest first. Nothing at or beyond `upto`, the safe offset, may be cleaned."""
    first_dirty = clean_offset if log_start_offset <= clean_offset <= log_end_offset else log_start_offset
    lag_ms = config.min_compaction_lag_ms
    upper = first_dirty
    clean_bytes = dirty_bytes = 0
    earliest_ms = now_ms
    for segment in segments:
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        if segment.next_offset > upto or (lag_ms > 0 and segment.largest_timestamp_ms > now_ms - lag_ms):
            break
        dirty_bytes += segment.size_bytes
        upper = segment.next_offset
        if segment.first_timestamp_ms >= 0:
            earliest_ms = min(earliest_ms, segment.first_timestamp_ms)
    overdue = dirty_bytes > 0 and now_ms - earliest_ms > max(config.max_compaction_lag_ms, lag_ms)
    return Cleanable(first_dirty, upper, clean_bytes, dirty_bytes, overdue)


def is_worth_it(found: Cleanable, config: TopicConfig) -> bool:
    return found.dirty_bytes > 0 and (found.overdue or found.dirty_ratio > config.min_cleanable_dirty_ratio)


def dirtiest(candidates: Iterable[tuple[Named, Cleanable]]) -> Named | None:
    """Of logs that are worth it, the one to clean next: overdue ones first, then by their dirty share."""
    best = max(candidates, key=lambda each: (each[1].overdue, each[1].dirty_ratio), default=None)
    return None if best is None else best[0]


def must_roll(config: TopicConfig, size_bytes: int, first_timestamp_ms: int, now_ms: int) -> bool:
    """Whether records lie in the active segment, which is never cleaned, for longer than they may stay uncleaned."""
    lag_ms = max(config.max_compaction_lag_ms, config.min_compaction_lag_ms)
    return size_bytes > 0 and first_timestamp_ms >= 0 and now_ms - first_timestamp_ms > lag_ms


def group(
    segments: Sequence[SegmentFacts], segment_bytes: int, segment_index_bytes: int, end_offset: int
) -> list[list[SegmentFacts]]:
    """Runs of the segments that start before `end_offset`, each of which becomes one segment.

    By the size they have now: what comes out is hardly ever larger, and usually several runs become one next time.
    """
    bytes_max = min(segment_bytes, SEGMENT_BYTES_MAX)
    groups: list[list[SegmentFacts]] = []
    size_bytes = index_bytes = 0
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        size_bytes += segment.size_bytes
        index_bytes += segment.index_bytes
        if (
            not groups
            or size_bytes > bytes_max
            or index_bytes > segment_index_bytes
            or segment.next_offset - groups[-1][0].base_offset > RELATIVE_OFFSET_MAX
        ):
            groups.append([])
            size_bytes, index_bytes = segment.size_bytes, segment.index_bytes
        groups[-1].append(segment)
    return groups
