"""What a leader checks on a batch that a producer sent, before it takes it into the log.

`check_produced` looks at the header and the checksum only and runs for every batch on the event loop. `deep_check`
takes the records apart; it is asked for only when `needs_deep_check` says so, is pure CPU, and may run in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import seal_batch
from tidelog.records.compression import Codec, UnknownCodec, codec_of
from tidelog.records.frames import check_frames
from tidelog.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    crc_of,
    peek,
)
from tidelog.records.record import INFLATED_BYTES_MAX, inflate
from tidelog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig

RECORD_ERRORS_MAX: Final = 100
"""How many records one error names: a reply must not grow with what the sender did wrong."""

_ZSTD: Final = 4
_STORES_UNCOMPRESSED_AS_IS: Final = ("producer", "uncompressed")
_BROKER_ONLY_BITS: Final = CONTROL_BIT | DELETE_HORIZON_BIT | LOG_APPEND_TIME_BIT


LZ4_FLAGS_AT: Final = 4
LZ4_INDEPENDENT_BLOCKS: Final = 0x20

RECORD_SIZE_MIN: Final = 7
"""A record without key, value and headers: one byte each for seven fields."""


class InvalidRecord(BrokerError):  # noqa: N818 - named for the fact it reports
    """The batch came over undamaged, but no log may take it. Sending it again will not help.

    `record_errors` says which records (by their index in the batch) are to blame, where that is known.
    """

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.record_errors = record_errors


def check_produced(batch: memoryview, config: TopicConfig, now_ms: int, *, zstd_allowed: bool = True) -> BatchHeader:
    """The header of `batch`, which is then exactly one whole, undamaged v2 batch that a client may write.

    `zstd_allowed` is false for Produce requests below v7, whose senders could not read it back.
    """
    size = len(batch)
    if size < HEADER_SIZE or batch[MAGIC_AT] != MAGIC_V2:
        raise _not_a_v2_batch(batch)
    header = peek(batch)
    (
        base_offset,
        batch_length,
        _leader_epoch,
        _magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = header
    if batch_length != size - LOG_OVERHEAD:
        raise _wrong_length(header, size)
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    if crc != crc_of(batch, 0, size):
        raise CorruptBatch("the batch's CRC-32C does not match its bytes: it was damaged on its way, send it again")
    codec = attributes & CODEC_MASK
    if codec >= _ZSTD and (codec > _ZSTD or not zstd_allowed):
        raise _unsupported_codec(codec)
    if record_count <= 0 or last_offset_delta != record_count - 1 or base_offset != 0:
        raise _inconsistent_range(header)
    if not codec and record_count * RECORD_SIZE_MIN > size - HEADER_SIZE:
        raise _overstated_count(record_count, size - HEADER_SIZE)
    if attributes & _BROKER_ONLY_BITS:
        raise _broker_only_attribute(attributes)
    if producer_id < 0:
        if attributes & TRANSACTIONAL_BIT:
            raise InvalidRecord("a transactional batch needs a producer id")
    elif base_sequence < 0 or producer_epoch < 0:
        raise _no_sequence(header)
    if config.message_timestamp_type == "CreateTime" and (
        max_timestamp > now_ms + config.message_timestamp_after_max_ms
        or base_timestamp < now_ms - config.message_timestamp_before_max_ms
    ):
        _check_timestamps(header, config, now_ms)
    return header


def needs_deep_check(header: BatchHeader, config: TopicConfig) -> bool:
    """Whether the header alone cannot say if the log may take the batch as it is."""
    return (
        header.attributes & CODEC_MASK != 0
        or config.compacted
        or config.compression_type not in _STORES_UNCOMPRESSED_AS_IS
    )


def deep_check(
    batch: memoryview, header: BatchHeader, config: TopicConfig, max_bytes: int = INFLATED_BYTES_MAX
) -> memoryview:
    """What the log should store for a batch that passed `check_produced`: itself, or itself recompressed.

    In the latter case it has another size and checksum: `peek` it again. Records are walked over only where a topic's
    settings need it: that is Python's work, record by record, while inflating is C's and lets other threads run.
    """
    body = inflate(batch, header, max_bytes)
    if header.codec == Codec.LZ4 and not batch[HEADER_SIZE + LZ4_FLAGS_AT] & LZ4_INDEPENDENT_BLOCKS:
        raise InvalidRecord("the blocks of an lz4 frame must be independent: Java clients cannot read others")
    if header.record_count * RECORD_SIZE_MIN > len(body):
        raise _overstated_count(header.record_count, len(body))
    target, level = _target_compression(header, config)
    if target == header.codec and not config.compacted:
        return batch
    keyless = check_frames(body, header.record_count)
    if keyless and config.compacted:
        raise InvalidRecord(
            f"{len(keyless)} of {header.record_count} records have no key, which a compacted topic needs",
            tuple((index, "a compacted topic needs a key") for index in keyless[:RECORD_ERRORS_MAX]),
        )
    if target == header.codec:
        return batch
    recompressed = seal_batch(header, body, target, level)
    if len(recompressed) > config.max_message_bytes:
        raise _too_large(len(recompressed), config)
    return memoryview(recompressed)


def _target_compression(header: BatchHeader, config: TopicConfig) -> tuple[Codec, int | None]:
    match config.compression_type:
        case "producer":
            return codec_of(header.codec), None
        case "uncompressed":
            return Codec.NONE, None
        case "gzip":
            return Codec.GZIP, config.compression_gzip_level
        case "lz4":
            return Codec.LZ4, config.compression_lz4_level
        case "zstd":
            return Codec.ZSTD, config.compression_zstd_level
        case _:
            return Codec.SNAPPY, None


def _too_large(size: int, config: TopicConfig) -> BrokerError:
    return BrokerError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch is {size} bytes, this topic takes up to {config.max_message_bytes} (max.message.bytes)",
    )


def _not_a_v2_batch(batch: memoryview) -> BrokerError:
    size = len(batch)
    if size == 0:
        return InvalidRecord("there is no record batch: send exactly one per partition")
    if size > MAGIC_AT and batch[MAGIC_AT] < MAGIC_V2:
        return BrokerError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format v{batch[MAGIC_AT]} is not taken: send v2 record batches (any client since Kafka 0.11)",
        )
    if size < HEADER_SIZE:
        return CorruptBatch(f"a batch header takes {HEADER_SIZE} bytes, only {size} came")
    return InvalidRecord(f"record batch format v{batch[MAGIC_AT]} is not known here: send v2")


def _wrong_length(header: BatchHeader, size: int) -> BrokerError:
    if HEADER_SIZE <= header.size < size:
        return InvalidRecord(
            f"{size - header.size} bytes follow the first record batch: send exactly one batch per partition"
        )
    return CorruptBatch(f"the batch claims to be {header.size} bytes long, {size} came")


def _unsupported_codec(codec: int) -> BrokerError:
    if codec == _ZSTD:
        message = "zstd needs Produce version 7 or later: use a newer client or another compression"
        return BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    return UnknownCodec(codec)


def _inconsistent_range(header: BatchHeader) -> BrokerError:
    if header.base_offset != 0:
        return InvalidRecord(f"the base offset of a produced batch must be 0, it is {header.base_offset}")
    if header.record_count <= 0:
        return InvalidRecord(f"a produced batch must hold records, this one counts {header.record_count}")
    return InvalidRecord(
        f"the last offset delta must be {header.record_count - 1} for {header.record_count} records, "
        f"it is {header.last_offset_delta}"
    )


def _overstated_count(record_count: int, size: int) -> BrokerError:
    """Believing the count would leave a gap of as many offsets in the log."""
    return InvalidRecord(f"{record_count} records cannot fit into the batch's {size} bytes of records")


def _broker_only_attribute(attributes: int) -> BrokerError:
    if attributes & CONTROL_BIT:
        return InvalidRecord("clients may not write control batches")
    if attributes & LOG_APPEND_TIME_BIT:
        return BrokerError(
            ErrorCode.INVALID_TIMESTAMP,
            "the timestamp type LogAppendTime is for the broker to set (message.timestamp.type), not for producers",
        )
    return InvalidRecord("the delete horizon attribute is for the broker to set")


def _no_sequence(header: BatchHeader) -> BrokerError:
    return InvalidRecord(
        f"a batch with a producer id ({header.producer_id}) needs an epoch and a base sequence of 0 or more, "
        f"it has {header.producer_epoch} and {header.base_sequence}"
    )


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """The slow half of the timestamp check: find out which limit is crossed, or that there is no timestamp at all."""
    ahead_ms = header.max_timestamp - now_ms
    if header.max_timestamp != NO_TIMESTAMP and ahead_ms > config.message_timestamp_after_max_ms:
        raise BrokerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is {ahead_ms} ms ahead of the broker's clock, "
            f"more than message.timestamp.after.max.ms ({config.message_timestamp_after_max_ms}) allows",
        )
    behind_ms = now_ms - header.base_timestamp
    if header.base_timestamp != NO_TIMESTAMP and behind_ms > config.message_timestamp_before_max_ms:
        raise BrokerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is {behind_ms} ms behind the broker's clock, "
            f"more than message.timestamp.before.max.ms ({config.message_timestamp_before_max_ms}) allows",
        )
