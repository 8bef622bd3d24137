"""When a log goes on in a new segment. PURE.

By size, by the age of its first record against the one that arrives (so that replaying old data rolls as it did the
first time), by full indexes, and where an offset would not fit the index's 32 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from tidelog.storage import offset_index, time_index
from tidelog.storage.segment import SEGMENT_BYTES_MAX
from tidelog.storage.walk import RELATIVE_OFFSET_MAX
from tidelog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.storage.segment import Segment


def is_full(segment: Segment, config: TopicConfig, incoming_bytes: int, last_offset: int) -> bool:
    """Whether a batch must not go into `segment` any more."""
    if not segment.size:
        return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
    index_bytes_max = config.segment_index_bytes
    return (
        incoming_bytes > room_bytes(segment, config)
        or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        or (len(segment.index) + 1) * offset_index.ENTRY_SIZE > index_bytes_max
        or (len(segment.times) + 1) * time_index.ENTRY_SIZE > index_bytes_max
    )


class Easy(NamedTuple):
    """What a segment takes without a closer look, under one set of settings. The bounds lie within the real ones."""

    config: TopicConfig
    size: int
    """Of the segment, with the batch."""
    last_offset: int
    max_timestamp: int
    """Of a batch that has one at all."""


def easy(segment: Segment, config: TopicConfig) -> Easy:
    """Saves every append the look at indexes and ages that `is_full` and `is_aged_by` take."""
    entries_left = min(
        config.segment_index_bytes // offset_index.ENTRY_SIZE - len(segment.index),
        config.segment_index_bytes // time_index.ENTRY_SIZE - len(segment.times),
    )
    first = segment.rolling_timestamp()
    # An index gets an entry only after more than this many bytes.
    indexable_bytes = max(0, entries_left - 2) * config.index_interval_bytes
    return Easy(
        config,
        min(config.segment_bytes, SEGMENT_BYTES_MAX, segment.size + indexable_bytes),
        segment.base_offset + RELATIVE_OFFSET_MAX,
        first + config.segment_ms - config.segment_jitter_ms if first >= 0 else NO_TIMESTAMP,
    )


def room_bytes(segment: Segment, config: TopicConfig) -> int:
    return min(config.segment_bytes, SEGMENT_BYTES_MAX) - segment.size


def is_aged_by(segment: Segment, config: TopicConfig, max_timestamp: int, now_ms: int, salt: object) -> bool:
    """Whether the records that arrive are too far from the segment's first one."""
    if not segment.size:
        return False
    first = segment.rolling_timestamp()
    age_ms = max_timestamp - first if first >= 0 and max_timestamp >= 0 else now_ms - segment.created_ms
    return age_ms > age_limit_ms(segment, config, salt)


def is_aged(segment: Segment, config: TopicConfig, now_ms: int, salt: object) -> bool:
    """Whether the segment has been written to for long enough, whatever its records' timestamps say."""
    return segment.size > 0 and now_ms - segment.created_ms > age_limit_ms(segment, config, salt)


def age_limit_ms(segment: Segment, config: TopicConfig, salt: object) -> int:
    """`segment.ms` less a jitter that spreads the rolls of a topic's partitions; the same at every look."""
    spread_ms = min(config.segment_jitter_ms, config.segment_ms)
    if spread_ms <= 0:
        return config.segment_ms
    return config.segment_ms - crc32(f"{salt}@{segment.base_offset}".encode()) % spread_ms
