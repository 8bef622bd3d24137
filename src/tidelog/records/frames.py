"""Walking over the records of a batch without making anything of them: is it what the header promises?

This runs over every compressed batch that a producer sends, so it is one loop with nothing allocated per record.
"""

from __future__ import annotations

from tidelog.records.record import CorruptRecords
from tidelog.records.varint import INT32_BYTES_MAX, INT64_BYTES_MAX, BadVarint, read_varint


def check_frames(body: bytes, record_count: int) -> list[int]:
    """Check that `body` is exactly `record_count` whole records with offset deltas 0, 1, 2 and so on.

    Gives the indexes of the records without a key, which a compacted topic does not take.
    """
    keyless: list[int] = []
    position = 0
    index = 0
    try:
        for index in range(record_count):
            position, has_key = _check_record(body, position, index)
            if not has_key:
                keyless.append(index)
    except IndexError:
        raise CorruptRecords(f"the records end inside record {index} of {record_count}") from None
    except BadVarint as error:
        raise CorruptRecords(f"record {index} of {record_count} is damaged: {error}") from None
    if position != len(body):
        raise CorruptRecords(f"{len(body) - position} bytes follow the batch's {record_count} records")
    return keyless


def _check_record(body: bytes, position: int, index: int) -> tuple[int, bool]:
    """Where record `index`, which starts at `position`, ends; and whether it has a key."""
    # One-byte varints are spelled out, as in record.py. Positions may run past the end: comparing with `record_end`,
    # or the next look into the body, finds it.
    byte = body[position]
    position += 1
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
    else:
        length, position = read_varint(body, position - 1, INT32_BYTES_MAX)
    record_end = position + length
    if length < 0 or record_end > len(body):
        raise CorruptRecords(f"record {index} claims {length} bytes, {len(body) - position} are left")
    position += 1  # attributes, of which none is in use
    if body[position] < 0x80:
        position += 1
    else:
        _, position = read_varint(body, position, INT64_BYTES_MAX)
    byte = body[position]
    position += 1
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
    else:
        offset_delta, position = read_varint(body, position - 1, INT32_BYTES_MAX)
    if offset_delta != index:
        raise CorruptRecords(f"record {index} has offset delta {offset_delta}: deltas must count up from 0")
    key_length, position = _read_length(body, position, index)
    if key_length > 0:
        position += key_length
    value_length, position = _read_length(body, position, index)
    if value_length > 0:
        position += value_length
    if body[position] == 0:
        position += 1
    else:
        position = _skip_headers(body, position, index)
    if position != record_end:
        raise CorruptRecords(f"record {index} does not fill the {length} bytes it claims")
    return position, key_length >= 0


def _read_length(body: bytes, position: int, index: int) -> tuple[int, int]:
    byte = body[position]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(body, position, INT32_BYTES_MAX)
    if length < -1:
        raise CorruptRecords(f"record {index} has a field of {length} bytes")
    return length, position


def _skip_headers(body: bytes, position: int, index: int) -> int:
    count, position = read_varint(body, position, INT32_BYTES_MAX)
    if count < 0:
        raise CorruptRecords(f"record {index} claims {count} headers")
    for _ in range(count):
        key_length, position = _read_length(body, position, index)
        if key_length < 0:
            raise CorruptRecords(f"record {index} has a header without a key")
        value_length, position = _read_length(body, position + key_length, index)
        if value_length > 0:
            position += value_length
    return position
