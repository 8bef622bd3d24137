"""The few byte-level steps that generated codecs call: variable-length integers, tag sections, length checks."""

from __future__ import annotations

from tidelog.wire.errors import DecodeError, EncodeError

ARRAY_ELEMENTS_MAX = 1_000_000
"""No sane request lists more; a frame of a hundred megabytes could otherwise claim a list of as many items."""


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Unsigned LEB128 of at most 32 bits, as flexible versions use it (records use zig-zag instead)."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    second = buffer[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    third = buffer[position + 2]
    if third < 0x80:
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, position + 3
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    for shift in (21, 28):
        position += 1
        byte = buffer[position + 2]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + 3
    raise DecodeError("a variable-length integer is longer than 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    if value < 0:
        raise EncodeError(f"{value} cannot be an unsigned integer")
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def skip_tags(buffer: memoryview, position: int, count: int, end: int) -> int:
    """Steps over tagged fields that this version does not know (KIP-482)."""
    if count > end - position:
        raise too_short(count, end - position)
    for _ in range(count):
        _tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise too_short(size, end - position + size)
    return position


def too_short(wanted: int, left: int) -> DecodeError:
    return DecodeError(f"a field claims {wanted} bytes where {max(left, 0)} are left")


def bad_count(count: int, left: int) -> DecodeError:
    return DecodeError(f"a list claims {count} items where {max(left, 0)} bytes are left")


def wrong_tag_size(name: str, size: int) -> DecodeError:
    return DecodeError(f"the tagged field {name} does not fill the {size} bytes it claims")


def null_refused(name: str) -> DecodeError:
    return DecodeError(f"{name} must not be null in this version")


def not_in_version(name: str, version: int) -> EncodeError:
    return EncodeError(f"{name} cannot be expressed in version {version}")
