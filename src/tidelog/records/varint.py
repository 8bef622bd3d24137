"""Zig-zag varints as records use them: 32-bit ones of up to five bytes, 64-bit ones of up to ten.

Nearly every number in a record takes one or two bytes. Readers of records handle those in place, in raw form (before
the zig-zag is undone: odd means negative, 1 is -1), and come here for longer ones.
"""

from __future__ import annotations

from typing import Final

INT32_BYTES_MAX: Final = 5
INT64_BYTES_MAX: Final = 10


class BadVarint(ValueError):  # noqa: N818 - never leaves this room: readers of records say what it was part of
    """A number larger than its width."""


def read_raw(data: bytes, position: int, bytes_max: int) -> tuple[int, int]:
    """The raw number at `position` and the position after it; IndexError where the data ends first."""
    raw = 0
    shift = 0
    for _ in range(bytes_max):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> (bytes_max // 5 * 32):
                break
            return raw, position
        shift += 7
    raise BadVarint(f"a number does not fit into {bytes_max // 5 * 32} bits")


def from_raw(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


def write_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
