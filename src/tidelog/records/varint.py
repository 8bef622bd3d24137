"""Zig-zag varints as records use them: 32-bit ones of up to five bytes, 64-bit ones of up to ten.

Readers of records handle the one-byte case in place, since nearly every number in a record is small, and come here for
the rest.
"""

from __future__ import annotations

from typing import Final

INT32_BYTES_MAX: Final = 5
INT64_BYTES_MAX: Final = 10


class BadVarint(ValueError):  # noqa: N818 - never leaves this room: readers of records say what it was part of
    """More bytes than any number of that width takes."""


def read_varint(data: bytes, position: int, bytes_max: int) -> tuple[int, int]:
    """The number at `position` and the position after it; IndexError where the data ends first."""
    raw = 0
    shift = 0
    for _ in range(bytes_max):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise BadVarint(f"a number takes more than {bytes_max} bytes")


def write_varint(out: bytearray, value: int) -> None:
    if -64 <= value < 64:
        out.append((value << 1) ^ (value >> 63))
        return
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
