"""Which segments may go. PURE: figures in, a choice out.

Always a run from the oldest on: a log has no holes. A segment goes when all of its records are older than
`retention.ms` (by the largest timestamp, not the last), when the log without it still holds `retention.bytes`, or when
the log start offset has passed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.topic import UNLIMITED, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable


class SegmentFacts(NamedTuple):
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    """When the segment has no timestamps: when it was last written."""
    active: bool


class Choice(NamedTuple):
    """Delete the `oldest` first segments. If `roll_first`, the active one is the last of them."""

    oldest: int
    roll_first: bool


def choose(
    segments: Iterable[SegmentFacts],
    config: TopicConfig,
    *,
    now_ms: int,
    size_bytes: int,
    log_start_offset: int,
    upto: int,
) -> Choice:
    """`segments` from oldest to active, read only as far as needed. Nothing beyond `upto`, the high watermark, goes."""
    by_policy = "delete" in config.cleanup_policy
    by_time = by_policy and config.retention_ms != UNLIMITED
    by_size = by_policy and config.retention_bytes != UNLIMITED
    surplus = size_bytes - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.next_offset > upto:
            break
        if segment.active and segment.size_bytes == 0:
            break  # nothing to delete, and rolling it would give the same file again
        passed = segment.next_offset <= log_start_offset
        expired = by_time and now_ms - segment.largest_timestamp_ms > config.retention_ms
        too_big = by_size and surplus >= segment.size_bytes
        if not (passed or expired or too_big):
            break
        surplus -= segment.size_bytes
        count += 1
        if segment.active:
            return Choice(count, roll_first=True)
    return Choice(count, roll_first=False)
