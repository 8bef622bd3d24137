"""Taking a leader's batches as they are: offsets, epochs and producers are already decided.

A fetch reply holds many batches and may end inside one. They are checked again (a network is not a disk, but both
damage bytes) and written in as few writes as segments allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import BatchHeader, crc_ok
from tidelog.records.record import iter_batches
from tidelog.storage import rolling
from tidelog.storage.replay import marker_in, replay
from tidelog.storage.walk import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment


class Followed(NamedTuple):
    """`first_offset` is -1 if the buffer held no whole batch."""

    first_offset: int
    next_offset: int
    size_bytes: int


class _Piece(NamedTuple):
    start: int
    header: BatchHeader


def append(log: Log, buffer: bytes | bytearray | memoryview, now_ms: int) -> Followed:
    view = memoryview(buffer)
    start_offset = log.log_start_offset
    pieces = _check(view, 0 if start_offset == log.log_end_offset else log.log_end_offset)
    if not pieces:
        return Followed(-1, log.log_end_offset, 0)
    first = pieces[0].header
    if first.last_offset < start_offset:
        raise _out_of_order(first, start_offset)
    if first.base_offset < start_offset == log.log_end_offset:
        # Records were deleted up to the middle of a batch, and this log begins with that batch.
        log.truncate_fully_and_start_at(first.base_offset)
    done = 0
    while done < len(pieces):
        done += _append_run(log, view, pieces[done:], now_ms)
    if log.log_start_offset < start_offset:
        log.advance_log_start(start_offset)
    last = pieces[-1]
    return Followed(pieces[0].header.base_offset, last.header.next_offset, last.start + last.header.size)


def _check(view: memoryview, expected: int) -> list[_Piece]:
    """Offsets may jump, since a leader's log may be compacted, but never go back."""
    pieces: list[_Piece] = []
    start = 0
    for header, _ in iter_batches(view):
        if not crc_ok(view, start, header.size):
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} arrived damaged: fetch it again"
            )
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise _out_of_order(header, expected)
        pieces.append(_Piece(start, header))
        start += header.size
        expected = header.next_offset
    return pieces


def _out_of_order(header: BatchHeader, expected: int) -> BrokerError:
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"a batch at offset {header.base_offset} cannot follow offset {expected - 1}: truncate first",
    )


def _append_run(log: Log, view: memoryview, pieces: list[_Piece], now_ms: int) -> int:
    """Write the leading pieces that fit one segment, in one write. Returns how many."""
    first = pieces[0]
    head = first.header
    segment = log.segment_for(head.size, head.base_offset, head.last_offset, head.max_timestamp, now_ms)
    count, size = 1, head.size
    room = rolling.room_bytes(segment, log.config)
    for piece in pieces[1:]:
        too_far = piece.header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        if size + piece.header.size > room or too_far:
            break
        count += 1
        size += piece.header.size
    position = log.write(segment, view[first.start : first.start + size], size)
    for start, header in pieces[:count]:
        segment.note(
            position + start - first.start,
            header.size,
            header.last_offset,
            header.max_timestamp,
            log.config.index_interval_bytes,
        )
        log.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            _remember(log, segment, view[start : start + header.size], header, now_ms)
    log.wrote(segment, pieces[count - 1].header.next_offset, now_ms)
    return count


def _remember(log: Log, segment: Segment, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
    completed = replay(log.producers, header, now_ms, marker_in(batch, header))
    if completed is not None:
        log.aborted.ended(segment.base_offset, completed, log.producers.transactions)
