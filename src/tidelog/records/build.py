"""Making batches: records in, the bytes of one v2 batch out, checksum included.

`build_batch` serves whoever has the records at hand. A producer that fills a batch over time uses `append_record` as
records come, and `seal_batch` at the end. Both it and `record_size_max` are the compiled ones where those are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.records.compiled import rows as compiled_rows
from tidelog.records.compression import Codec, compress
from tidelog.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    write_crc,
)
from tidelog.records.varint import INT32_BYTES_MAX, INT64_BYTES_MAX, write_varint
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, LeaderEpoch, Offset, ProducerId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.records.record import Record, RecordHeaders

NO_PRODUCER_EPOCH = -1

# Length, attributes, timestamp delta, offset delta, header count.
_RECORD_OVERHEAD_MAX = INT32_BYTES_MAX + 1 + INT64_BYTES_MAX + INT32_BYTES_MAX + INT32_BYTES_MAX
_NULL = b"\x01"  # the varint of -1
_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1


def build_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: Offset | None = None,
    last_offset: Offset | None = None,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
) -> bytearray:
    """One batch of `records`, whose offsets ascend; a producer numbers them from 0.

    The offset range is that of the records unless given: compaction keeps a range whose records are gone, and there may
    be no record left at all. With `append_time_ms` the batch is LogAppendTime and the records' own timestamps are lost
    to readers.
    """
    if base_offset is None or last_offset is None:
        assert records, "a batch without records needs its offset range spelled out"
        base_offset = Offset(records[0].offset) if base_offset is None else base_offset
        last_offset = Offset(records[-1].offset) if last_offset is None else last_offset
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = base_timestamp
    body = bytearray()
    for offset, timestamp, key, value, headers in records:
        append_record(body, offset - base_offset, timestamp - base_timestamp, key, value, headers=headers)
        max_timestamp = max(max_timestamp, timestamp)
    attributes = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = append_time_ms
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal_batch(header, body, codec, level)


def seal_batch(header: BatchHeader, body: Buffer, codec: Codec = Codec.NONE, level: int | None = None) -> bytearray:
    """One batch of `header` and the uncompressed record part `body`; length, codec bits and checksum are set here."""
    payload = body if codec == Codec.NONE else compress(codec, body, level)
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        *header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload), attributes=header.attributes & ~CODEC_MASK | codec
        ),
    )
    batch += payload
    write_crc(batch, 0, len(batch))
    return batch


def append_record_pure(
    body: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    *,
    headers: RecordHeaders = (),
) -> int:
    """Add one record to the (uncompressed) record part of a batch; gives the bytes it took."""
    if not _INT64_MIN <= timestamp_delta <= _INT64_MAX:
        raise OverflowError(f"a timestamp {timestamp_delta} ms from that of the batch cannot be stored")
    record = bytearray(1)  # attributes, of which none is in use
    write_varint(record, timestamp_delta)
    write_varint(record, offset_delta)
    _write_bytes(record, key)
    _write_bytes(record, value)
    write_varint(record, len(headers))
    for name, content in headers:
        _write_bytes(record, name.encode("utf-8", "surrogateescape"))
        _write_bytes(record, content)
    before = len(body)
    write_varint(body, len(record))
    body += record
    return len(body) - before


def record_size_max_pure(key: Buffer | None, value: Buffer | None, headers: RecordHeaders = ()) -> int:
    """At least as many bytes as `append_record` will take, whatever the deltas: for deciding whether it still fits."""
    size = _RECORD_OVERHEAD_MAX
    for part in (key, value):
        size += INT32_BYTES_MAX + (0 if part is None else len(part))
    for name, content in headers:
        name_size = len(name.encode("utf-8", "surrogateescape"))
        size += 2 * INT32_BYTES_MAX + name_size + (0 if content is None else len(content))
    return size


def _write_bytes(out: bytearray, content: Buffer | None) -> None:
    if content is None:
        out += _NULL
    else:
        write_varint(out, len(content))
        out += content


append_record = append_record_pure if compiled_rows is None else compiled_rows.append_record
record_size_max = record_size_max_pure if compiled_rows is None else compiled_rows.record_size_max
