"""Taking batches apart: the batches in a buffer, the records in a batch.

The broker's hot path never comes here. Damaged or hostile bytes give CorruptRecords, CorruptBatch or BadCompression and
nothing else: every length is checked against what is left before anything is made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.compression import codec_of, decompress
from tidelog.records.header import (
    HEADER_SIZE,
    MAGIC_V2,
    BatchHeader,
    Buffer,
    CorruptBatch,
    peek,
)
from tidelog.records.varint import INT32_BYTES_MAX, INT64_BYTES_MAX, BadVarint, from_raw, read_raw

if TYPE_CHECKING:
    from collections.abc import Iterator

INFLATED_BYTES_MAX: Final = 100 << 20
"""How far one batch may inflate unless the caller says otherwise: as far as a request could be long without
compression (socket.request.max.bytes)."""

RecordHeaders = tuple[tuple[str, bytes | None], ...]


_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

_new_tuple = tuple.__new__


class CorruptRecords(BrokerError):  # noqa: N818 - named for the fact it reports
    """The record part of a batch does not hold what its header promises."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()
    """Keys are UTF-8; other bytes survive a round trip as surrogate escapes."""


class Batch(NamedTuple):
    header: BatchHeader
    data: memoryview
    """The whole batch, its header included."""


def iter_batches(buffer: Buffer) -> Iterator[Batch]:
    """The whole batches in `buffer`, in order. A cut-off last one is left out: a fetch may end inside a batch."""
    view = memoryview(buffer)
    end = len(view)
    position = 0
    while end - position >= HEADER_SIZE:
        header = peek(view, position)
        if header.magic != MAGIC_V2:
            raise CorruptBatch(f"record batch format v{header.magic} at byte {position} is not known here")
        size = header.size
        if size < HEADER_SIZE:
            raise CorruptBatch(f"the batch at byte {position} claims to be {size} bytes long, less than its header")
        if size > end - position:
            return
        yield Batch(header, view[position : position + size])
        position += size


def iter_records(batch: Buffer, max_bytes: int = INFLATED_BYTES_MAX) -> Iterator[Record]:
    """The records of one whole batch; those of a control batch too. The checksum is not looked at here."""
    header = peek(batch)
    return iter_body(inflate(batch, header, max_bytes), header)


def iter_body(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in the inflated part of a batch with this header."""
    count = header.record_count
    append_time = header.max_timestamp if header.log_append_time else None
    position = 0
    try:
        for _ in range(count):
            record, position = _read_record(body, position, header, append_time)
            yield record
    except IndexError:
        raise CorruptRecords(f"the records end inside the one at byte {position}") from None
    except BadVarint as error:
        raise CorruptRecords(f"the record at byte {position} is damaged: {error}") from None
    if position != len(body):
        raise CorruptRecords(f"{len(body) - position} bytes follow the batch's {count} records")


def inflate(batch: Buffer, header: BatchHeader, max_bytes: int = INFLATED_BYTES_MAX) -> bytes:
    """The record part of one whole batch, inflated."""
    check_whole(batch, header)
    return decompress(codec_of(header.codec), memoryview(batch)[HEADER_SIZE:], max_bytes)


def check_whole(batch: Buffer, header: BatchHeader) -> None:
    """Refuses what cannot be the whole batch that `header` is the header of."""
    if header.magic != MAGIC_V2:
        raise CorruptBatch(f"record batch format v{header.magic} is not known here")
    if header.size != len(batch):
        raise CorruptBatch(f"the batch claims to be {header.size} bytes long, {len(batch)} are there")
    if header.record_count < 0:
        raise CorruptRecords(f"the batch claims to hold {header.record_count} records")


def _read_record(body: bytes, start: int, header: BatchHeader, append_time: int | None) -> tuple[Record, int]:
    """The record at `start` of a batch's inflated part, and where the next one starts."""
    # Varints of one and two bytes are spelled out, here and in frames.py: calls would more than double the cost.
    # Slices may come out short on damaged data: the position then misses the record's end and is refused there.
    position = start + 1
    raw = body[start]
    if raw >= 0x80:
        byte = body[position]
        position += 1
        if byte < 0x80:
            raw = raw & 0x7F | byte << 7
        else:
            raw, position = read_raw(body, start, INT32_BYTES_MAX)
    end = position + (raw >> 1)
    if raw & 1 or end > len(body):
        raise CorruptRecords(
            f"the record at byte {start} claims {from_raw(raw)} bytes, {len(body) - position} are left"
        )
    position += 1  # the record's attributes, of which none is in use
    raw = body[position]
    position += 1
    if raw >= 0x80:
        raw, position = read_raw(body, position - 1, INT64_BYTES_MAX)
    timestamp = header.base_timestamp + ((raw >> 1) ^ -(raw & 1)) if append_time is None else append_time
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        timestamp = _wrap_int64(timestamp)
    raw = body[position]
    position += 1
    if raw >= 0x80:
        byte = body[position]
        position += 1
        if byte < 0x80:
            raw = raw & 0x7F | byte << 7
        else:
            raw, position = read_raw(body, position - 2, INT32_BYTES_MAX)
    offset = header.base_offset + ((raw >> 1) ^ -(raw & 1))
    key, position = _read_bytes(body, position, start)
    value, position = _read_bytes(body, position, start)
    headers: RecordHeaders = ()
    if body[position] == 0:
        position += 1
    else:
        headers, position = _read_headers(body, position, start)
    if position != end:
        raise CorruptRecords(f"the record at byte {start} does not fill the bytes it claims")
    return _new_tuple(Record, (offset, timestamp, key, value, headers)), position


def _wrap_int64(number: int) -> int:
    """What other readers make of a sum that overflows; refusing it would stop a consumer at this record for good."""
    return (number - _INT64_MIN & 2**64 - 1) + _INT64_MIN


def _read_bytes(body: bytes, position: int, start: int) -> tuple[bytes | None, int]:
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
            return None, position
        raise CorruptRecords(f"the record at byte {start} has a field of {from_raw(raw)} bytes")
    end = position + (raw >> 1)
    return body[position:end], end


def _read_headers(body: bytes, position: int, start: int) -> tuple[RecordHeaders, int]:
    raw, position = read_raw(body, position, INT32_BYTES_MAX)
    if raw & 1:
        raise CorruptRecords(f"the record at byte {start} claims {from_raw(raw)} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(raw >> 1):
        key, position = _read_bytes(body, position, start)
        if key is None:
            raise CorruptRecords(f"the record at byte {start} has a header without a key")
        value, position = _read_bytes(body, position, start)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
