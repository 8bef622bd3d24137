"""What a leader refuses, with which code, and what it stores."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import append_record, build_batch, seal_batch
from tidelog.records.compression import Codec
from tidelog.records.header import HEADER_SIZE, BatchHeader, crc_ok, peek, write_crc
from tidelog.records.record import Record, inflate, iter_records
from tidelog.records.validate import (
    RECORD_ERRORS_MAX,
    InvalidRecord,
    check_produced,
    deep_check,
    needs_deep_check,
)
from tidelog.types import ProducerId

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PLAIN = TopicConfig()
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))

Damage = Callable[[bytearray], object]


def produced(count: int = 3, codec: Codec = Codec.NONE, key: bytes | None = b"k", **fields: int) -> bytearray:
    """What a well-behaved producer sends, except for the header fields given."""
    batch = build_batch([Record(i, NOW_MS, key, b"value %d" % i) for i in range(count)], codec=codec)
    if not fields:
        return batch
    header = peek(batch)._replace(**fields)
    struct.pack_into(">qiibIhiqqqhii", batch, 0, *header)
    write_crc(batch, 0, len(batch))
    return batch


def check(batch: bytes | bytearray, config: TopicConfig = PLAIN, *, zstd_allowed: bool = True) -> BatchHeader:
    return check_produced(memoryview(batch), config, NOW_MS, zstd_allowed=zstd_allowed)


def refused(batch: bytes | bytearray, config: TopicConfig = PLAIN) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        check(batch, config)
    return caught.value


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_good_batch_gives_its_header(codec: Codec, count: int) -> None:
    batch = produced(count, codec)
    assert check(batch) == peek(batch)


def test_a_good_idempotent_and_transactional_batch() -> None:
    batch = build_batch(
        [Record(0, NOW_MS, None, b"v")],
        producer_id=ProducerId(0),
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    assert check(batch).transactional


@pytest.mark.parametrize(
    ("batch", "code", "complaint"),
    [
        pytest.param(b"", ErrorCode.INVALID_RECORD, "no record batch", id="empty"),
        pytest.param(b"x", ErrorCode.CORRUPT_MESSAGE, "only 1 came", id="one byte"),
        pytest.param(produced()[:60], ErrorCode.CORRUPT_MESSAGE, "only 60 came", id="cut inside the header"),
        pytest.param(produced()[:-1], ErrorCode.CORRUPT_MESSAGE, "claims to be", id="cut inside the records"),
        pytest.param(produced() + b"x", ErrorCode.INVALID_RECORD, "1 bytes follow", id="a byte after it"),
        pytest.param(produced() + produced(), ErrorCode.INVALID_RECORD, "exactly one batch", id="two batches"),
        pytest.param(produced(batch_length=-1), ErrorCode.CORRUPT_MESSAGE, "claims to be 11", id="negative length"),
        pytest.param(produced(batch_length=2**31 - 1), ErrorCode.CORRUPT_MESSAGE, "claims", id="absurd length"),
        pytest.param(produced(magic=3), ErrorCode.INVALID_RECORD, "v3 is not known", id="a later format"),
        pytest.param(produced(magic=-1), ErrorCode.INVALID_RECORD, "is not known", id="negative format"),
        pytest.param(produced(base_offset=1), ErrorCode.INVALID_RECORD, "base offset", id="base offset"),
        pytest.param(produced(record_count=0), ErrorCode.INVALID_RECORD, "must hold records", id="no records"),
        pytest.param(produced(record_count=-1), ErrorCode.INVALID_RECORD, "counts -1", id="negative count"),
        pytest.param(produced(last_offset_delta=3), ErrorCode.INVALID_RECORD, "delta must be 2", id="delta too high"),
        pytest.param(produced(last_offset_delta=-1), ErrorCode.INVALID_RECORD, "it is -1", id="negative delta"),
        pytest.param(produced(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 5", id="codec 5"),
        pytest.param(produced(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 7", id="codec 7"),
        pytest.param(produced(attributes=0x20), ErrorCode.INVALID_RECORD, "control", id="control batch"),
        pytest.param(produced(attributes=0x30), ErrorCode.INVALID_RECORD, "control", id="transaction marker"),
        pytest.param(produced(attributes=0x40), ErrorCode.INVALID_RECORD, "delete horizon", id="delete horizon"),
        pytest.param(produced(attributes=0x08), ErrorCode.INVALID_TIMESTAMP, "LogAppendTime", id="append time"),
        pytest.param(
            produced(attributes=0x10), ErrorCode.INVALID_RECORD, "needs a producer id", id="transaction of none"
        ),
        pytest.param(produced(producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD, "0 and -1", id="no sequence"),
        pytest.param(produced(producer_id=1, base_sequence=0), ErrorCode.INVALID_RECORD, "-1 and 0", id="no epoch"),
    ],
)
def test_what_is_refused(batch: bytearray, code: ErrorCode, complaint: str) -> None:
    error = refused(batch)
    assert error.code is code
    assert complaint in error.message


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [26, 34, 200])
def test_old_message_sets_are_told_what_to_send(magic: int, size: int) -> None:
    message_set = bytearray(size)
    struct.pack_into(">qiIb", message_set, 0, 0, size - 12, 0, magic)
    error = refused(message_set)
    assert error.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert f"v{magic}" in error.message
    assert "send v2" in error.message


@pytest.mark.parametrize("position", [17, 21, 40, HEADER_SIZE, -1])
def test_a_flipped_bit_is_corrupt_and_retriable(position: int) -> None:
    batch = produced()
    batch[position] ^= 4
    error = refused(batch)
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert error.code.retriable


def test_the_size_limit_is_on_the_whole_batch_as_sent() -> None:
    batch = produced()
    assert check(batch, TopicConfig(max_message_bytes=len(batch)))
    error = refused(batch, TopicConfig(max_message_bytes=len(batch) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in error.message


def test_size_is_judged_before_the_checksum_is_computed() -> None:
    batch = produced()
    batch[-1] ^= 1
    assert refused(batch, TopicConfig(max_message_bytes=10)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_a_newer_produce_request() -> None:
    batch = produced(codec=Codec.ZSTD)
    with pytest.raises(BrokerError, match="Produce version 7") as caught:
        check(batch, zstd_allowed=False)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert check(produced(codec=Codec.LZ4), zstd_allowed=False)


@pytest.mark.parametrize(
    ("base", "largest", "config", "refused_for"),
    [
        (NOW_MS, NOW_MS, {}, None),
        (0, NOW_MS, {}, None),
        (NOW_MS, NOW_MS + HOUR_MS, {}, None),
        (NOW_MS, NOW_MS + HOUR_MS + 1, {}, "after.max.ms"),
        (NOW_MS - 10, NOW_MS, {"message_timestamp_before_max_ms": 10}, None),
        (NOW_MS - 11, NOW_MS, {"message_timestamp_before_max_ms": 10}, "before.max.ms"),
        (-1, -1, {"message_timestamp_before_max_ms": 10}, None),
        (-1, NOW_MS + HOUR_MS + 1, {"message_timestamp_before_max_ms": 10}, "after.max.ms"),
        (0, 2**62, {"message_timestamp_type": "LogAppendTime"}, None),
    ],
)
def test_timestamps_stay_within_the_topics_limits(
    base: int, largest: int, config: dict[str, int | str], refused_for: str | None
) -> None:
    batch = produced(base_timestamp=base, max_timestamp=largest)
    topic = TopicConfig(**config)  # type: ignore[arg-type]
    if refused_for is None:
        assert check(batch, topic)
    else:
        error = refused(batch, topic)
        assert error.code is ErrorCode.INVALID_TIMESTAMP
        assert f"message.timestamp.{refused_for}" in error.message


@settings(max_examples=300)
@given(
    codec=st.sampled_from(Codec),
    damage=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
    cut=st.none() | st.integers(0, 300),
    config=st.sampled_from([PLAIN, COMPACTED, TopicConfig(compression_type="gzip")]),
)
def test_damage_raises_nothing_but_clear_errors(
    codec: Codec, damage: list[tuple[int, int]], cut: int | None, config: TopicConfig
) -> None:
    batch = produced(codec=codec)
    for position, value in damage:
        batch[position % len(batch)] = value
    if cut is not None:
        del batch[cut % len(batch) :]
    if len(batch) >= HEADER_SIZE:
        write_crc(batch, 0, len(batch))
    with contextlib.suppress(BrokerError):
        header = check(batch, config)
        deep_check(memoryview(batch), header, config, 1 << 20)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize(
    ("codec", "config", "needed"),
    [
        (Codec.NONE, PLAIN, False),
        (Codec.NONE, TopicConfig(compression_type="uncompressed"), False),
        (Codec.NONE, TopicConfig(compression_type="zstd"), True),
        (Codec.NONE, COMPACTED, True),
        (Codec.NONE, TopicConfig(cleanup_policy=frozenset({"compact", "delete"})), True),
        (Codec.GZIP, PLAIN, True),
        (Codec.ZSTD, TopicConfig(compression_type="zstd"), True),
    ],
)
def test_when_the_records_must_be_looked_at(codec: Codec, config: TopicConfig, needed: bool) -> None:
    assert needs_deep_check(peek(produced(codec=codec)), config) is needed


def deep(batch: bytearray, config: TopicConfig = PLAIN, max_bytes: int = 1 << 20) -> memoryview:
    return deep_check(memoryview(batch), check(batch, config), config, max_bytes)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_with_producer_compression_the_bytes_stay_as_sent(codec: Codec) -> None:
    batch = produced(100, codec)
    sent = bytes(batch)
    stored = deep(batch)
    assert stored.obj is batch
    assert bytes(stored) == sent


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    ("compression_type", "target"),
    [
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_another_compression_type_recompresses(codec: Codec, compression_type: str, target: Codec) -> None:
    batch = produced(100, codec)
    stored = deep(batch, TopicConfig(compression_type=compression_type))
    header = peek(stored)
    assert header.codec == target
    assert header.size == len(stored)
    assert crc_ok(stored, 0, len(stored))
    assert not stored.readonly
    assert list(iter_records(stored)) == list(iter_records(batch))
    if target is codec:
        assert stored.obj is batch


def test_the_topics_level_is_used() -> None:
    records = [Record(i, NOW_MS, b"%d" % (i * i), b"%d" % (i**7)) for i in range(5000)]
    batch = build_batch(records)
    small, large = (deep(batch, TopicConfig(compression_type="gzip", compression_gzip_level=level)) for level in (9, 1))
    assert len(small) < len(large)


def test_a_batch_that_grows_over_the_limit_by_inflating_is_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(5000))], codec=Codec.ZSTD)
    with pytest.raises(BrokerError) as caught:
        deep(batch, TopicConfig(compression_type="uncompressed", max_message_bytes=1000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_bomb_is_refused(codec: Codec) -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(8 << 20))], codec=codec)
    with pytest.raises(BrokerError) as caught:
        deep(batch)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_bytes_that_do_not_inflate_are_invalid_not_corrupt(codec: Codec) -> None:
    header = peek(produced(codec=codec))
    batch = seal_batch(header, b"this is not compressed at all")
    batch[22] |= codec
    write_crc(batch, 0, len(batch))
    with pytest.raises(BrokerError) as caught:
        deep(batch)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert not caught.value.code.retriable


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    records = [Record(i, NOW_MS, None if i in (1, 3) else b"k", b"v") for i in range(5)]
    batch = build_batch(records, codec=codec)
    with pytest.raises(InvalidRecord, match="2 of 5 records have no key") as caught:
        deep(batch, COMPACTED)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    assert deep(batch).obj is batch


def test_the_number_of_record_errors_is_bounded() -> None:
    with pytest.raises(InvalidRecord, match="1000 of 1000") as caught:
        deep(produced(1000, key=None), COMPACTED)
    assert len(caught.value.record_errors) == RECORD_ERRORS_MAX


def test_offset_deltas_of_a_compressed_batch_must_count_up() -> None:
    body = bytearray()
    for delta in (0, 2, 1):
        append_record(body, delta, 0, b"k", b"v")
    batch = seal_batch(peek(produced(3)), body, Codec.LZ4)
    with pytest.raises(BrokerError, match="deltas must count up") as caught:
        deep(batch, COMPACTED)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [2, 4])
def test_the_count_must_be_that_of_the_records(count: int) -> None:
    body = bytearray()
    for delta in range(3):
        append_record(body, delta, 0, b"k", b"v")
    with pytest.raises(BrokerError) as caught:
        deep(seal_batch(peek(produced(count)), body, Codec.GZIP), COMPACTED)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_lz4_frames_with_dependent_blocks_are_refused() -> None:
    """They inflate, but Java's reader does not know them: one would end every Java consumer of the partition."""
    batch = produced(3, codec=Codec.LZ4)
    deep(batch)
    body = inflate(memoryview(batch), peek(batch), 1 << 20)
    dependent = cramjam.lz4.Compressor(content_checksum=False, block_linked=True)
    dependent.compress(bytes(body))
    rewritten = seal_batch(peek(produced(3)), bytes(dependent.finish()))
    rewritten[22] |= Codec.LZ4
    write_crc(rewritten, 0, len(rewritten))
    with pytest.raises(InvalidRecord, match="must be independent"):
        deep(rewritten)
