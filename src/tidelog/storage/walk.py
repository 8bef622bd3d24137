"""Going from batch to batch through a segment's file. What lies there is never believed: lengths are checked first.

`places` knows where batches are and which offsets they hold, which is all that reading needs. `headers` gives whole
headers, and `checked` also says whether the checksum holds, reading every byte once. All of them raise `Damage` at
the first position that cannot be a batch.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from tidelog.records.header import ATTRIBUTES_AT, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, BatchHeader, peek
from tidelog.storage.fs import File, read_fully

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLACE = Struct(">qi4xb6xi")
_PLACE_SIZE = _PLACE.size
RELATIVE_OFFSET_MAX = 2**31 - 1
"""Offsets in the indexes are int32, counted from the segment's base."""

_SMALL_CHUNK = 8 << 10
_LARGE_CHUNK = 1 << 20


class Damage(Exception):  # noqa: N818 - it is what was found, not a fault of ours
    """From `position` on, the file does not hold a whole batch that could follow the one before it."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class Place(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int


def places(file: File, position: int, end: int) -> Iterator[Place]:
    """The batches from `position`, which starts one, up to `end`."""
    chunk, chunk_start = b"", position
    while position < end:
        inside = position - chunk_start
        if inside + _PLACE_SIZE > len(chunk):
            chunk, chunk_start, inside = read_fully(file, position, min(_SMALL_CHUNK, end - position)), position, 0
        if len(chunk) < _PLACE_SIZE:
            raise Damage(position, f"{len(chunk)} bytes are too few for a batch")
        base_offset, length, magic, last_delta = _PLACE.unpack_from(chunk, inside)
        size = length + LOG_OVERHEAD
        if reason := _implausible(base_offset, size, magic, last_delta, end - position):
            raise Damage(position, reason)
        yield Place(position, size, base_offset, base_offset + last_delta)
        position += size


def place_at(file: File, position: int, end: int) -> Place:
    """The one batch at `position`."""
    chunk = file.pread(_PLACE_SIZE, position)
    if len(chunk) < _PLACE_SIZE:
        raise Damage(position, f"{len(chunk)} bytes are too few for a batch")
    base_offset, length, magic, last_delta = _PLACE.unpack(chunk)
    size = length + LOG_OVERHEAD
    if reason := _implausible(base_offset, size, magic, last_delta, end - position):
        raise Damage(position, reason)
    return Place(position, size, base_offset, base_offset + last_delta)


def headers(file: File, position: int, end: int, base_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch; offsets must rise, within what a segment at `base_offset` can hold."""
    chunk, chunk_start = b"", position
    next_offset, limit = base_offset, base_offset + RELATIVE_OFFSET_MAX
    while position < end:
        inside = position - chunk_start
        if inside + HEADER_SIZE > len(chunk):
            chunk, chunk_start, inside = read_fully(file, position, min(_SMALL_CHUNK, end - position)), position, 0
        header = _plausible_header(chunk, inside, position, end, next_offset, limit)
        yield position, header
        next_offset = header.next_offset
        position += header.size


def checked(file: File, position: int, end: int, base_offset: int) -> Iterator[tuple[int, BatchHeader, bool]]:
    """As `headers`, and whether each batch's checksum holds."""
    chunk, chunk_start = b"", position
    next_offset, limit = base_offset, base_offset + RELATIVE_OFFSET_MAX
    while position < end:
        inside = position - chunk_start
        if inside + HEADER_SIZE > len(chunk):
            chunk, chunk_start, inside = read_fully(file, position, min(_LARGE_CHUNK, end - position)), position, 0
        header = _plausible_header(chunk, inside, position, end, next_offset, limit)
        if inside + header.size > len(chunk):
            chunk, chunk_start, inside = read_fully(file, position, min(_LARGE_CHUNK, end - position)), position, 0
        yield position, header, _crc_holds(file, position, header, chunk, inside)
        next_offset = header.next_offset
        position += header.size


def _crc_holds(file: File, position: int, header: BatchHeader, chunk: bytes, inside: int) -> bool:
    """A batch longer than the chunk is summed piece by piece: a garbage length must not cost its size in memory."""
    in_chunk = memoryview(chunk)[inside + ATTRIBUTES_AT : inside + header.size]
    crc = crc32c(in_chunk)
    done = ATTRIBUTES_AT + len(in_chunk)
    while done < header.size:
        piece = file.pread(min(_LARGE_CHUNK, header.size - done), position + done)
        if not piece:
            return False
        crc = crc32c(piece, crc)
        done += len(piece)
    return crc == header.crc


def _plausible_header(chunk: bytes, inside: int, position: int, end: int, next_offset: int, limit: int) -> BatchHeader:
    if len(chunk) - inside < HEADER_SIZE:
        raise Damage(position, f"{len(chunk) - inside} bytes are too few for a batch header")
    header = peek(chunk, inside)
    reason = _implausible(header.base_offset, header.size, header.magic, header.last_offset_delta, end - position)
    if reason:
        raise Damage(position, reason)
    if header.base_offset < next_offset or header.last_offset > limit:
        raise Damage(position, f"offset {header.base_offset} where {next_offset} or more should follow")
    return header


def _implausible(base_offset: int, size: int, magic: int, last_delta: int, left: int) -> str:
    """Why these cannot be the fields of a batch; empty if they can."""
    if magic != MAGIC_V2:
        return f"magic {magic} instead of {MAGIC_V2}"
    if size < HEADER_SIZE:
        return f"a batch of {size} bytes, less than its header"
    if size > left:
        return f"a batch of {size} bytes where {left} are left"
    if base_offset < 0 or last_delta < 0:
        return f"base offset {base_offset} with a last offset delta of {last_delta}"
    return ""
