"""A closed segment's batches one after the other, with their bytes, read in large pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.header import HEADER_SIZE, MAGIC_V2, BatchHeader, crc_ok, peek
from tidelog.records.record import INFLATED_BYTES_MAX
from tidelog.storage.fs import File, read_fully
from tidelog.storage.walk import Damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.storage.compaction.throttle import Throttle


class StoredBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview
    """Good until the next one is asked for."""


class Stretch(NamedTuple):
    """Where in a segment's file to read, and between which offsets what is found there must lie."""

    position: int
    end: int
    base_offset: int
    next_offset: int


def batches(file: File, stretch: Stretch, piece_bytes: int, throttle: Throttle) -> Iterator[StoredBatch]:
    """Checksums are checked: what is damaged must not be sealed with a new one."""
    position, end, next_offset, limit = stretch
    piece, piece_start = memoryview(b""), position
    while position < end:
        inside = position - piece_start
        if inside + HEADER_SIZE > len(piece):
            piece, piece_start, inside = _read(file, position, end, piece_bytes, throttle), position, 0
        if len(piece) < HEADER_SIZE:
            raise Damage(position, f"{len(piece)} bytes are too few for a batch header")
        header = peek(piece, inside)
        if (
            header.magic != MAGIC_V2
            or not HEADER_SIZE <= header.size <= min(end - position, INFLATED_BYTES_MAX)
            or header.last_offset_delta < 0
            or not next_offset <= header.base_offset <= header.last_offset < limit
        ):
            raise Damage(position, f"no batch with offsets of {next_offset} to {limit}")
        if inside + header.size > len(piece):
            piece, piece_start, inside = (
                _read(file, position, end, max(piece_bytes, header.size), throttle),
                position,
                0,
            )
        if not crc_ok(piece, inside, header.size):
            raise Damage(position, f"the checksum of the batch at offset {header.base_offset} does not hold")
        yield StoredBatch(position, header, piece[inside : inside + header.size])
        next_offset = header.next_offset
        position += header.size


def _read(file: File, position: int, end: int, count: int, throttle: Throttle) -> memoryview:
    piece = read_fully(file, position, min(count, end - position))
    throttle.used(len(piece))
    return memoryview(piece)
