"""Cutting the end of a log off, as a follower does when its leader has something else there.

The order keeps a crash harmless: no recovery point on disk may lie beyond the cut, and what was cut off, segments or
the end of one, must not come back beside what is written in its place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage.aborted_index import AbortedIndexDamaged
from tidelog.storage.producers import Producers
from tidelog.storage.replay import producers_at, rebuild_aborted
from tidelog.storage.segment import Segment, remove_files

if TYPE_CHECKING:
    from tidelog.storage.log import Log

_log = logging.getLogger(__name__)


def truncate_to(log: Log, offset: int, now_ms: int) -> None:
    """Cut before the batch that holds `offset`. If no records are left then, or deleted ones, the log starts over."""
    _log.info("%s: cutting from %d to %d", log.topic_partition, log.log_end_offset, offset)
    if offset <= log.log_start_offset:
        _start_over(log, offset, now_ms)
        return
    segment = log.segments.holding(offset)
    place = segment.find(offset)
    end_offset = offset if place is None else min(offset, place.base_offset)
    if end_offset <= log.log_start_offset:
        _start_over(log, log.log_start_offset, now_ms)
        return
    log.room.before_truncation(log.topic_partition, end_offset)
    _remove(log, log.segments.drop_from(segment.base_offset + 1))
    if place is not None:
        segment.truncate(place.position, end_offset)
        # Before anything is written in place of what goes: else a crash could leave old batches between new ones.
        segment.file.get().sync()
    log.log_end_offset = end_offset
    log.durability.truncated(end_offset)
    log.epochs.truncate_end(end_offset)
    log.snapshots.remove_after(end_offset)
    log.room.fs.sync_dir(log.directory)
    log.producers = producers_at(end_offset, log.segments, log.snapshots, now_ms)
    try:
        log.aborted.truncate(segment.base_offset, end_offset)
    except AbortedIndexDamaged:
        rebuild_aborted(log.aborted, segment, end_offset, log.segments, log.snapshots, now_ms)
    if not log.segments.size_bytes:
        _start_over(log, end_offset, now_ms)
    elif _ends_in_a_gap(log):
        # No batch tells where the log ends now, so a segment's name does: else a restart would find a shorter log,
        # report a loss that was none, and give offsets away again.
        log.roll(now_ms)


def _ends_in_a_gap(log: Log) -> bool:
    """Whether compaction took what lay before the log end."""
    active, end_offset = log.segments.active, log.log_end_offset
    return active.base_offset < end_offset and active.find(end_offset - 1) is None


def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> None:
    """Empty the log; the next record will have `offset`."""
    _log.info("%s: emptying, to go on at %d", log.topic_partition, offset)
    _start_over(log, offset, now_ms)


def _start_over(log: Log, offset: int, now_ms: int) -> None:
    """Empty, and the next record has `offset`."""
    log.room.before_truncation(log.topic_partition, offset)
    log.room.log_start_moved(log.topic_partition, offset)
    _remove(log, log.segments.drop_from(0))
    log.snapshots.remove_after(-1)
    log.segments.start_over(offset, now_ms)
    log.log_start_offset = log.log_end_offset = offset
    log.durability.truncated(offset)
    log.durability.flushed_offset = offset
    log.epochs.truncate_end(0)
    log.producers = Producers()
    log.room.fs.sync_dir(log.directory)


def _remove(log: Log, gone: list[Segment]) -> None:
    """Newest first: whatever a crash leaves is a shorter log. The directory is synced before anything is appended."""
    for segment in gone:
        segment.discard()
        remove_files(log.room.fs, segment.stem)
        log.snapshots.remove(segment.base_offset)
        log.aborted.forget(segment.base_offset)
