"""Finding records by time: the first one as late as a target, and the latest of all (ListOffsets).

Indexes lead to one batch; only that one is inflated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.header import peek
from tidelog.records.record import iter_records
from tidelog.storage.walk import Place
from tidelog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.storage.segment import Segment
    from tidelog.storage.segments import Segments


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(
    segments: Segments, target_ms: int, log_start_offset: int, log_end_offset: int
) -> TimestampedOffset | None:
    """The first record, in log order, whose timestamp is at least `target_ms`."""
    for segment, end_offset in segments.with_ends(log_end_offset):
        if end_offset <= log_start_offset or segment.largest_timestamp() < target_ms:
            continue
        from_offset = max(log_start_offset, segment.base_offset)
        while (place := segment.find_timestamp(target_ms, from_offset)) is not None:
            found = _first_in(segment, place, target_ms, log_start_offset)
            if found is not None:
                return found
            # The batch's late record was compacted away or lies before the log start: go on behind it.
            from_offset = place.last_offset + 1
    return None


def latest(segments: Segments, log_start_offset: int, log_end_offset: int) -> TimestampedOffset | None:
    """The first of the records with the largest timestamp."""
    live = [each for each, end_offset in segments.with_ends(log_end_offset) if end_offset > log_start_offset]
    best = max((each.largest_timestamp() for each in live), default=-1)
    if best < 0:
        return None
    found = first_at_or_after(segments, best, log_start_offset, log_end_offset)
    if found is None:
        # The latest record of the first segment was deleted, but its time is still that segment's largest.
        best = max([_largest_left(live[0], log_start_offset), *(each.largest_timestamp() for each in live[1:])])
        found = first_at_or_after(segments, best, log_start_offset, log_end_offset) if best >= 0 else None
    return found


def _largest_left(segment: Segment, log_start_offset: int) -> int:
    """The largest timestamp from `log_start_offset` on, the slow way."""
    start = segment.find(log_start_offset)
    if start is None:
        return NO_TIMESTAMP
    largest = NO_TIMESTAMP
    for position, header in segment.headers(start.position):
        if header.base_offset >= log_start_offset:
            largest = max(largest, header.max_timestamp)
        else:
            batch = segment.batch_bytes(Place(position, header.size, header.base_offset, header.last_offset))
            left = [each.timestamp for each in iter_records(batch) if each.offset >= log_start_offset]
            largest = max([largest, *left])
    return largest


def _first_in(segment: Segment, place: Place, target_ms: int, log_start_offset: int) -> TimestampedOffset | None:
    batch = segment.batch_bytes(place)
    leader_epoch = peek(batch).leader_epoch
    for record in iter_records(batch):
        if record.timestamp >= target_ms and record.offset >= log_start_offset:
            return TimestampedOffset(record.offset, record.timestamp, leader_epoch)
    return None
