"""Bringing producer state back: the newest snapshot, and every batch since then. Markers are read, data is not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.records.control import read_marker
from tidelog.records.record import CorruptRecords
from tidelog.storage.producers import Producers
from tidelog.storage.walk import Damage

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tidelog.records.control import Marker
    from tidelog.records.header import BatchHeader, Buffer
    from tidelog.storage.aborted import Aborted
    from tidelog.storage.fs import File
    from tidelog.storage.segment import Segment
    from tidelog.storage.segments import Segments
    from tidelog.storage.snapshot_files import SnapshotFiles
    from tidelog.storage.transactions import CompletedTransaction

_MARKER_BYTES_MAX = 4 << 10
"""A control batch that is larger is none of ours."""


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
    for position, header in segment.headers(start.position):
        if header.base_offset >= end_offset:
            break
        replay(producers, header, now_ms, marker_at(segment.file.get(), position, header))


def rebuild_aborted(
    aborted: Aborted, segment: Segment, end_offset: int, segments: Segments, snapshots: SnapshotFiles, now_ms: int
) -> None:
    """Find the aborted transactions of a segment, which ends at `end_offset`, again."""
    _log.warning("rebuilding the index of aborted transactions of %s", segment.file.path)
    aborted.begin_rebuild(segment.base_offset)
    producers = producers_at(segment.base_offset, segments, snapshots, now_ms)
    try:
        for position, header in segment.headers():
            if header.base_offset >= end_offset:
                break
            completed = replay(producers, header, now_ms, marker_at(segment.file.get(), position, header))
            if completed is not None:
                aborted.ended(segment.base_offset, completed, producers.transactions)
    except Damage as damage:
        _log.error("%s: aborted transactions may be missing: %s", segment.file.path, damage)


def replay(
    producers: Producers, header: BatchHeader, now_ms: int, marker: Marker | None = None
) -> CompletedTransaction | None:
    """As if the batch had just been appended. Its own timestamp counts only if the broker gave it (LogAppendTime)."""
    if header.producer_id < 0:
        return None
    timestamp_ms = header.max_timestamp if header.log_append_time else now_ms
    return producers.record(header, header.base_offset, timestamp_ms, marker)


def marker_at(file: File, position: int, header: BatchHeader) -> Marker | None:
    """The marker that the batch at `position` holds, if it is a control batch."""
    if not header.control or header.size > _MARKER_BYTES_MAX:
        return None
    return marker_in(file.pread(header.size, position), header)


def marker_in(batch: Buffer, header: BatchHeader) -> Marker | None:
    if not header.control or header.size > _MARKER_BYTES_MAX:
        return None
    try:
        return read_marker(batch)
    except CorruptRecords as reason:
        _log.error("the control batch at offset %d makes no sense: %s", header.base_offset, reason)
        return None
