"""The newest offset of every key in the dirty part of a log, in bounded memory.

A dictionary, since nothing else in Python comes near its speed; so the bound is on the number of keys. A key that is
long is represented by a digest, which is longer than any key that stands for itself: the two cannot be confused.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING

from tidelog.records.build import seal_batch
from tidelog.records.record import CorruptRecords, iter_records
from tidelog.records.varint import INT32_BYTES_MAX, BadVarint, read_raw

if TYPE_CHECKING:
    from tidelog.records.header import BatchHeader

KEY_BYTES_MAX = 32
LONG_KEY_RAW = KEY_BYTES_MAX << 1
"""A key whose length reads as more than this in a record, before the zig-zag is undone, is long."""

ENTRY_BYTES = 224
"""What one key may take. In the table while it grows 90, its offset 32, the key or digest 80, a place in `live` 16."""


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=KEY_BYTES_MAX + 1).digest()


class OffsetMap:
    __slots__ = ("end_offset", "keyless", "offsets", "slots")

    def __init__(self, bytes_max: int, first_dirty: int) -> None:
        self.slots = max(1, bytes_max // ENTRY_BYTES)
        self.offsets: dict[bytes, int] = {}
        self.end_offset = first_dirty
        """Every record from the first dirty one up to here is in the map."""
        self.keyless = 0
        """How many of them nobody can say what they are the newest of."""

    def add(self, header: BatchHeader, body: bytes) -> bool:
        """Take in a batch with its inflated records. False once the map is full: `end_offset` may lie inside it."""
        if header.base_offset < self.end_offset or len(self.offsets) + header.record_count > self.slots:
            return self._add_with_care(header, body)
        self.keyless += _put_all(self.offsets, header, body)
        self.end_offset = header.next_offset
        return True

    def skip(self, header: BatchHeader) -> None:
        """A batch without keys that count."""
        self.end_offset = header.next_offset

    def live(self) -> array[int]:
        """The offsets of all records that are the newest of their key, rising."""
        return array("q", sorted(self.offsets.values()))

    def _add_with_care(self, header: BatchHeader, body: bytes) -> bool:
        """Record by record: some are in the map already, or not all will fit."""
        from_offset, offsets = self.end_offset, self.offsets
        previous = header.base_offset - 1
        for record in iter_records(seal_batch(header, body)):
            if not previous < record.offset <= header.last_offset:
                raise misshapen(header)
            previous = record.offset
            if record.offset < from_offset:
                continue
            if record.key is None:
                self.keyless += 1
                continue
            key = record.key if len(record.key) <= KEY_BYTES_MAX else digest(record.key)
            if key not in offsets and len(offsets) >= self.slots:
                self.end_offset = record.offset
                return False
            offsets[key] = record.offset
        self.end_offset = header.next_offset
        return True


def _put_all(offsets: dict[bytes, int], header: BatchHeader, body: bytes) -> int:
    """How many records have no key."""
    # The hot loop of compaction: every dirty record passes here. Varints of one and two bytes are spelled out.
    size, base_offset, limit = len(body), header.base_offset, header.last_offset_delta << 1
    position, previous, keyless = 0, -1, 0
    try:
        for _ in range(header.record_count):
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
            position += 1  # attributes, of which none is in use
            while body[position] >= 0x80:  # the timestamp
                position += 1
            delta = body[position + 1]
            position += 2
            if delta >= 0x80:
                byte = body[position]
                position += 1
                if byte < 0x80:
                    delta = delta & 0x7F | byte << 7
                else:
                    delta, position = read_raw(body, position - 2, INT32_BYTES_MAX)
            key_raw = body[position]
            position += 1
            if key_raw >= 0x80:
                key_raw, position = read_raw(body, position - 1, INT32_BYTES_MAX)
            if raw & 1 or end > size or delta & 1 or not previous < delta <= limit:
                raise misshapen(header)
            previous = delta
            if key_raw & 1:
                keyless += 1
            else:
                value_at = position + (key_raw >> 1)
                if value_at >= end:
                    raise misshapen(header)
                key = body[position:value_at]
                offsets[key if key_raw <= LONG_KEY_RAW else digest(key)] = base_offset + (delta >> 1)
            position = end
    except (IndexError, BadVarint):
        raise misshapen(header) from None
    if position != size:
        raise misshapen(header)
    return keyless


def misshapen(header: BatchHeader) -> CorruptRecords:
    """The checksum holds, so this is what a producer sent while nobody looked at its records."""
    return CorruptRecords(f"the batch at offset {header.base_offset} does not hold the records its header promises")
