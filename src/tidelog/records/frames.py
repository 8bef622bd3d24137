"""Walking over the records of a batch without making anything of them: is it what the header promises?

This runs over every compressed batch that a producer sends, so it is one loop with nothing allocated per record.
"""

from __future__ import annotations

from tidelog.records.record import CorruptRecords
from tidelog.records.varint import INT32_BYTES_MAX, INT64_BYTES_MAX, BadVarint, from_raw, read_raw


def check_frames(body: bytes, record_count: int) -> list[int]:
    """Check that `body` is exactly `record_count` whole records with offset deltas 0, 1, 2 and so on.

    Gives the indexes of the records without a key, which a compacted topic does not take.
    """
    keyless: list[int] = []
    position = 0
    index = -1
    try:
        for index in range(record_count):
            position, has_key = _check_record(body, position, index)
            if not has_key:
                keyless.append(index)
    except IndexError:
        raise CorruptRecords(f"the records end inside number {index} of {record_count}") from None
    except BadVarint as error:
        raise CorruptRecords(f"record {index} is damaged: {error}") from None
    if position != len(body):
        raise CorruptRecords(f"{len(body) - position} bytes follow the batch's {record_count} records")
    return keyless


def _check_record(body: bytes, position: int, index: int) -> tuple[int, bool]:
    """Where the record at `position` ends, and whether it has a key."""
    # Varints of one and two bytes are spelled out, here and in record.py: calls would more than double the cost.
    # Positions may run past the end on damaged data: the next look into the body, or `end`, finds it.
    raw = body[position]
    position += 1
    if raw >= 0x80:
        byte = body[position]
        position += 1
        if byte < 0x80:
            raw = raw & 0x7F | byte << 7
        else:
            raw, position = read_raw(body, position - 2, INT32_BYTES_MAX)
    end = position + (raw >> 1)
    if raw & 1 or end > len(body):
        raise CorruptRecords(f"record {index} claims {from_raw(raw)} bytes, {len(body) - position} are left")
    position += 1  # attributes, of which none is in use
    if body[position] >= 0x80:
        _, position = read_raw(body, position, INT64_BYTES_MAX)
    else:
        position += 1
    raw = body[position]
    position += 1
    if raw >= 0x80:
        byte = body[position]
        position += 1
        if byte < 0x80:
            raw = raw & 0x7F | byte << 7
        else:
            raw, position = read_raw(body, position - 2, INT32_BYTES_MAX)
    if raw != index << 1:
        raise CorruptRecords(f"record {index} has offset delta {from_raw(raw)}: deltas must count up from 0")
    raw = body[position]
    position += 1
    if raw >= 0x80:
        raw, position = read_raw(body, position - 1, INT32_BYTES_MAX)
    has_key = raw != 1
    if not raw & 1:
        position += raw >> 1
    elif has_key:
        raise CorruptRecords(f"record {index} has a key of {from_raw(raw)} bytes")
    position = _skip_bytes(body, position, index)
    if body[position] == 0:
        position += 1
    else:
        position = _skip_headers(body, position, index)
    if position != end:
        raise CorruptRecords(f"record {index} does not fill the bytes it claims")
    return position, has_key


def _skip_bytes(body: bytes, position: int, index: int) -> int:
    """Past a field that may be null."""
    raw = body[position]
    position += 1
    if raw >= 0x80:
        byte = body[position]
        position += 1
        if byte < 0x80:
            raw = raw & 0x7F | byte << 7
        else:
            raw, position = read_raw(body, position - 2, INT32_BYTES_MAX)
    if raw & 1:
        if raw == 1:
            return position
        raise CorruptRecords(f"record {index} has a field of {from_raw(raw)} bytes")
    return position + (raw >> 1)


def _skip_headers(body: bytes, position: int, index: int) -> int:
    raw, position = read_raw(body, position, INT32_BYTES_MAX)
    if raw & 1:
        raise CorruptRecords(f"record {index} claims {from_raw(raw)} headers")
    for _ in range(raw >> 1):
        key_raw, position = read_raw(body, position, INT32_BYTES_MAX)
        if key_raw & 1:
            raise CorruptRecords(f"record {index} has a header with a key of {from_raw(key_raw)} bytes")
        position = _skip_bytes(body, position + (key_raw >> 1), index)
    return position
