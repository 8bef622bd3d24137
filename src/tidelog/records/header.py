"""The fixed 61 bytes in front of every v2 record batch: read them, patch them, check the checksum.

This is the hot path. A batch is opaque apart from this header: one unpack per batch, nothing per record. The checksum
covers everything from the attributes on, so base offset and leader epoch can be rewritten in place without redoing it.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception should look like one where it is caught
from typing import NamedTuple

from crc32c import crc32c

from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import LeaderEpoch, Offset

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Base offset and batch length: the bytes that `batch_length` does not count."""

MAGIC_V2 = 2
MAX_SEQUENCE = 2**31 - 1
NO_SEQUENCE = -1

MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
LEADER_EPOCH_AT = 12

CODEC_MASK = 0b0000_0111
LOG_APPEND_TIME_BIT = 0b0000_1000
TRANSACTIONAL_BIT = 0b0001_0000
CONTROL_BIT = 0b0010_0000
DELETE_HORIZON_BIT = 0b0100_0000

HEADER = Struct(">qiibIhiqqqhii")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")

_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__

# The checksum of a batch takes microseconds; handing the GIL over for it can cost a whole switch interval (5 ms).
_KEEP_GIL = 0


class CorruptBatch(BrokerError):  # noqa: N818 - named for the fact it reports
    """These bytes are not a whole, undamaged record batch."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, this header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> Offset:
        """By the delta, not the record count: compaction takes records out but leaves the offset range."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> int:
        """The compression codec's number, which may be one that nobody knows (5 to 7)."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether every record's timestamp is the batch's max timestamp."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp field holds the time at which tombstones may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def idempotent(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2^31-1 to 0; -1 when the batch has none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def peek(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked except that 61 bytes are there."""
    try:
        return _new_tuple(BatchHeader, _unpack_header(buffer, position))
    except StructError:
        raise CorruptBatch(
            f"a batch header takes {HEADER_SIZE} bytes, only {max(0, len(buffer) - position)} are left"
        ) from None


def patch(buffer: WritableBuffer, position: int, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Give the batch its place in the log, in place. Both fields lie before the checksummed part."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: WritableBuffer, position: int, now_ms: int) -> None:
    """Mark the batch as LogAppendTime at `now_ms`, in place, and redo its checksum."""
    header = peek(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_AT, now_ms)
    write_crc(buffer, position, header.size)


def write_crc(buffer: WritableBuffer, position: int, size: int) -> None:
    """Compute the checksum of the `size` bytes long batch at `position` and put it in its header."""
    _CRC.pack_into(buffer, position + CRC_AT, crc_of(buffer, position, size))


def crc_of(buffer: Buffer, position: int, size: int) -> int:
    """CRC-32C over everything from the attributes to the end of the batch."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size], 0, _KEEP_GIL)


def crc_ok(buffer: Buffer, position: int, size: int) -> bool:
    """Whether `size` bytes are there and carry the checksum that their header claims."""
    if size < HEADER_SIZE or position + size > len(buffer):
        return False
    claimed: int = _CRC.unpack_from(buffer, position + CRC_AT)[0]
    return claimed == crc_of(buffer, position, size)
