"""A batch without the records that go. PURE.

Offsets stay: the base offset, the last offset delta, and with them each record's own delta. So the bytes of the records
that stay are copied as they are. Producer, sequence and leader epoch stay too; count, largest timestamp, length and
checksum are made anew.

A batch that holds tombstones for the first time after a cleaning is marked with the time at which they may go, in place
of its base timestamp (KIP-534). That moves every record's timestamp delta.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.records.build import seal_batch
from tidelog.records.compression import codec_of
from tidelog.records.header import CODEC_MASK, DELETE_HORIZON_BIT, BatchHeader
from tidelog.records.varint import INT32_BYTES_MAX, INT64_BYTES_MAX, BadVarint, from_raw, read_raw, write_varint
from tidelog.storage.compaction.offset_map import misshapen
from tidelog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.storage.compaction.selecting import Selection


def rewrite(header: BatchHeader, body: bytes, selection: Selection, new_horizon_ms: int | None) -> bytearray:
    """The batch with at least one record of `body` left, compressed as it was."""
    assert selection.kept > 0
    kept = b"".join([body[start:end] for start, end in selection.runs])
    base_timestamp, max_timestamp, attributes = header.base_timestamp, header.max_timestamp, header.attributes
    try:
        if not header.log_append_time and selection.kept < header.record_count:
            max_timestamp = _largest_timestamp(kept, selection.kept, base_timestamp)
        if not header.log_append_time and new_horizon_ms is not None:
            kept = _shift_timestamps(kept, selection.kept, base_timestamp - new_horizon_ms)
    except (IndexError, BadVarint):
        raise misshapen(header) from None
    if new_horizon_ms is not None:
        base_timestamp = new_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    changed = header._replace(
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        record_count=selection.kept,
    )
    return seal_batch(changed, kept, codec_of(header.codec))


def emptied(header: BatchHeader) -> bytearray:
    """Only the header, for what it says of a producer or of where a segment ends.

    Records that are gone have no timestamps. Where the broker gave them, the batch's is when the producer was last
    heard of, so that one stays.
    """
    timestamp = header.max_timestamp if header.log_append_time else NO_TIMESTAMP
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return seal_batch(
        header._replace(attributes=attributes, base_timestamp=timestamp, max_timestamp=timestamp, record_count=0), b""
    )


def _largest_timestamp(body: bytes, count: int, base_timestamp: int) -> int:
    position = 0
    largest = NO_TIMESTAMP
    for _ in range(count):
        raw, position = read_raw(body, position, INT32_BYTES_MAX)
        end = position + (raw >> 1)
        raw, _ = read_raw(body, position + 1, INT64_BYTES_MAX)
        largest = max(largest, _wrap_int64(base_timestamp + from_raw(raw)))
        position = end
    return largest


def _shift_timestamps(body: bytes, count: int, shift_ms: int) -> bytes:
    """The records with `shift_ms` added to their timestamp deltas, to go with a base timestamp that is less by that."""
    out = bytearray()
    position = 0
    for _ in range(count):
        raw, position = read_raw(body, position, INT32_BYTES_MAX)
        end = position + (raw >> 1)
        record = bytearray(body[position : position + 1])
        raw, rest = read_raw(body, position + 1, INT64_BYTES_MAX)
        write_varint(record, _wrap_int64(from_raw(raw) + shift_ms))
        record += body[rest:end]
        write_varint(out, len(record))
        out += record
        position = end
    return bytes(out)


def _wrap_int64(number: int) -> int:
    """As readers do with a sum that overflows: it comes out as the timestamp that was there before."""
    return (number + 2**63 & 2**64 - 1) - 2**63
