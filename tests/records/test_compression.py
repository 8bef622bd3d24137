"""The codecs: what goes in comes out, never more than allowed, and bad input gives one kind of error."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.compression import (
    BadCompression,
    Codec,
    InflatedTooLarge,
    UnknownCodec,
    codec_of,
    compress,
    decompress,
)

REAL_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MEBIBYTE = 1 << 20
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)

every_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
real_codec = pytest.mark.parametrize("codec", REAL_CODECS, ids=lambda codec: codec.name)


def random_bytes(count: int) -> bytes:
    return random.Random(4).randbytes(count)


@every_codec
@given(data=st.binary(max_size=5000))
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@every_codec
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(random_bytes(3 * MEBIBYTE), id="incompressible"),
        pytest.param(bytes(3 * MEBIBYTE), id="zeros"),
        pytest.param(random_bytes(32 * 1024), id="one-xerial-block"),
        pytest.param(random_bytes(32 * 1024 + 1), id="one-byte-over-a-xerial-block"),
        pytest.param(random_bytes(64 * 1024) * 2, id="two-lz4-blocks"),
        pytest.param(b'{"event": "page_view", "user": 17}' * 20_000, id="text"),
    ],
)
def test_round_trip_of_sizes_that_matter(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@every_codec
@pytest.mark.parametrize("wrap", [bytearray, memoryview], ids=["bytearray", "memoryview"])
def test_any_buffer_will_do(codec: Codec, wrap: type[bytearray | memoryview]) -> None:
    data = b"tide" * 100
    packed = compress(codec, wrap(data))
    assert decompress(codec, wrap(packed), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, -1),
        (Codec.GZIP, 1),
        (Codec.GZIP, 9),
        (Codec.LZ4, 1),
        (Codec.LZ4, 9),
        (Codec.LZ4, 17),
        (Codec.ZSTD, -131072),
        (Codec.ZSTD, 3),
        (Codec.ZSTD, 22),
    ],
)
def test_every_level_of_kafka_is_taken(codec: Codec, level: int) -> None:
    data = b"level" * 500
    assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_level_makes_a_difference() -> None:
    chance = random.Random(4)
    data = b" ".join(b"%x" % chance.choice((chance.getrandbits(12), chance.getrandbits(40))) for _ in range(30_000))
    assert len(compress(Codec.GZIP, data, 9)) < len(compress(Codec.GZIP, data, 1))
    assert len(compress(Codec.LZ4, data, 12)) < len(compress(Codec.LZ4, data))
    assert len(compress(Codec.ZSTD, data, 3)) < len(compress(Codec.ZSTD, data, -50))


@every_codec
def test_one_byte_too_many_is_too_large(codec: Codec) -> None:
    data = random_bytes(100_000)
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(InflatedTooLarge, match="more than 99999 bytes") as caught:
        decompress(codec, packed, len(data) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@real_codec
def test_a_bomb_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MEBIBYTE))
    with pytest.raises(InflatedTooLarge):
        decompress(codec, bomb, MEBIBYTE)


@real_codec
def test_a_limit_of_zero_is_a_limit(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(InflatedTooLarge):
        decompress(codec, compress(codec, b"x"), 0)


@real_codec
@given(garbage=st.binary(max_size=200))
def test_garbage_is_bad_compression(codec: Codec, garbage: bytes) -> None:
    with contextlib.suppress(BadCompression):
        assert len(decompress(codec, garbage, MEBIBYTE)) <= MEBIBYTE


@real_codec
@settings(max_examples=200)
@given(position=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_damage_never_raises_anything_else(codec: Codec, position: int, value: int, cut: int) -> None:
    packed = bytearray(compress(codec, b"the same words and the same words again, " * 9 + random_bytes(60)))
    packed[position % len(packed)] = value
    for damaged in (packed, packed[: cut % len(packed)]):
        with contextlib.suppress(BadCompression):
            assert len(decompress(codec, damaged, 1000)) <= 1000


@real_codec
def test_every_truncation_is_found(codec: Codec) -> None:
    packed = compress(codec, b"a tide comes in, " * 5)
    for length in range(len(packed)):
        if codec is Codec.SNAPPY and length == len(XERIAL_HEADER):
            continue  # a xerial stream of no blocks: whole, and empty
        with pytest.raises(BadCompression):
            decompress(codec, packed[:length], MEBIBYTE)


@real_codec
def test_bytes_after_the_end_are_found(codec: Codec) -> None:
    with pytest.raises(BadCompression):
        decompress(codec, compress(codec, b"data") + b"tail!", MEBIBYTE)


def test_gzip_is_what_the_standard_library_reads_and_writes() -> None:
    assert gzip.decompress(compress(Codec.GZIP, b"hello")) == b"hello"
    assert decompress(Codec.GZIP, gzip.compress(b"hello"), 100) == b"hello"


def test_gzip_members_are_read_one_after_the_other_up_to_a_limit() -> None:
    member = gzip.compress(b"ab")
    assert decompress(Codec.GZIP, member * 3, 6) == b"ababab"
    with pytest.raises(InflatedTooLarge):
        decompress(Codec.GZIP, member * 3, 5)
    with pytest.raises(BadCompression, match="members"):
        decompress(Codec.GZIP, gzip.compress(b"") * 65, 5)


def test_plain_zlib_is_not_gzip() -> None:
    with pytest.raises(BadCompression, match="gzip"):
        decompress(Codec.GZIP, zlib.compress(b"hello"), 100)


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    data = random_bytes(70_000)
    packed = compress(Codec.SNAPPY, data)
    assert packed.startswith(XERIAL_HEADER)
    blocks: list[bytes] = []
    position = len(XERIAL_HEADER)
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert [len(block) for block in blocks] == [32768, 32768, 4464]
    assert b"".join(blocks) == data


def test_raw_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw" * 50)), 150) == b"raw" * 50


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        (struct.pack(">i", -1), "claims -1 bytes"),
        (struct.pack(">i", 0), "claims 0 bytes"),
        (struct.pack(">i", 2**31 - 1) + b"abc", "claims 2147483647 bytes"),
        (b"\x00\x00", "inside a block's length"),
    ],
)
def test_xerial_block_lengths_are_checked(blocks: bytes, complaint: str) -> None:
    with pytest.raises(BadCompression, match=complaint):
        decompress(Codec.SNAPPY, XERIAL_HEADER + blocks, MEBIBYTE)


def test_a_snappy_length_that_cannot_be_true_is_refused_before_allocating() -> None:
    four_gibibytes_from_eight_bytes = b"\xff\xff\xff\xff\x0f" + b"abc"
    with pytest.raises(BadCompression, match="cannot inflate to the claimed 4294967295"):
        decompress(Codec.SNAPPY, four_gibibytes_from_eight_bytes, 1 << 40)


@pytest.mark.parametrize("pattern", [b"\x00", b"ab", bytes(range(40))])
def test_the_snappy_ratio_limit_lets_the_best_compression_through(pattern: bytes) -> None:
    data = (pattern * MEBIBYTE)[:MEBIBYTE]
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MEBIBYTE) == data


def test_the_xerial_limit_counts_all_blocks_together() -> None:
    packed = compress(Codec.SNAPPY, bytes(100_000))
    with pytest.raises(InflatedTooLarge):
        decompress(Codec.SNAPPY, packed, 99_999)


def test_lz4_is_a_frame_of_independent_blocks() -> None:
    packed = compress(Codec.LZ4, b"abc" * 100_000)
    (magic,) = struct.unpack_from("<I", packed)
    flags = packed[4]
    assert magic == 0x184D2204
    assert flags >> 6 == 1, "frame version"
    assert flags & 0b0010_0000, "Java's reader refuses linked blocks"
    assert not flags & 0b0000_0001, "nor does it know dictionaries"


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_other_writers_are_read(linked: bool, checksum: bool) -> None:
    data = b"linked or not " * 20_000
    compressor = cramjam.lz4.Compressor(level=4, content_checksum=checksum, block_linked=linked)
    compressor.compress(data)
    assert decompress(Codec.LZ4, bytes(compressor.finish()), len(data)) == data


def test_zstd_without_a_declared_size_is_read() -> None:
    data = b"streamed " * 50_000
    compressor = cramjam.zstd.Compressor(level=3)
    for start in range(0, len(data), 7000):
        compressor.compress(data[start : start + 7000])
    assert decompress(Codec.ZSTD, bytes(compressor.finish()), len(data)) == data


@pytest.mark.parametrize("number", [5, 6, 7, -1])
def test_unknown_codecs_have_their_own_error(number: int) -> None:
    with pytest.raises(UnknownCodec, match=f"codec {number} is not known") as caught:
        codec_of(number)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(caught.value, BrokerError)


def test_codec_numbers_are_kafkas() -> None:
    assert [codec_of(number).name for number in range(5)] == ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"]
