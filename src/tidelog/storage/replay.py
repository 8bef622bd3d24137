"""Bringing producer state back: the newest snapshot, and every batch since then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage.producers import Producers
from tidelog.storage.walk import Damage

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tidelog.records.header import BatchHeader
    from tidelog.storage.segment import Segment
    from tidelog.storage.segments import Segments
    from tidelog.storage.snapshot_files import SnapshotFiles


def producers_at(end_offset: int, segments: Segments, snapshots: SnapshotFiles, now_ms: int) -> Producers:
    """The producers as they were when the log ended at `end_offset`. Reads headers only."""
    loaded = snapshots.load(end_offset)
    producers, from_offset = loaded if loaded is not None else (Producers(), 0)
    for segment, segment_end in segments.with_ends(end_offset):
        if segment.base_offset >= end_offset or segment_end <= from_offset or not segment.size:
            continue
        try:
            _replay_segment(producers, segment, from_offset, end_offset, now_ms)
        except Damage as damage:
            _log.error("%s: producers may be missing: %s", segment.file.path, damage)
    return producers


def _replay_segment(producers: Producers, segment: Segment, from_offset: int, end_offset: int, now_ms: int) -> None:
    start = segment.find(from_offset)
    if start is None:
        return
    for _, header in segment.headers(start.position):
        if header.base_offset >= end_offset:
            break
        replay(producers, header, now_ms)


def replay(producers: Producers, header: BatchHeader, now_ms: int) -> None:
    """As if the batch had just been appended. Its own timestamp counts only if the broker gave it (LogAppendTime)."""
    if header.producer_id >= 0:
        producers.record(header, header.base_offset, header.max_timestamp if header.log_append_time else now_ms)
