"""The four codecs of record batches, with the output bounded before and while it is made.

Everything here works on whole byte strings and gives up the GIL inside the C and Rust calls, so that it can run in a
thread. What comes out of `compress` is what every Kafka client reads: gzip members, xerial-framed snappy, lz4 frames
with independent blocks, zstd frames. `decompress` also reads raw snappy and lz4 frames with linked blocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import Buffer

GZIP_DEFAULT_LEVEL: Final = -1
LZ4_DEFAULT_LEVEL: Final = 9
ZSTD_DEFAULT_LEVEL: Final = 3

_GZIP_WBITS: Final = 31
# Writers make one member. Each further one copies the rest of the input, so senders must not choose their number.
_GZIP_MEMBERS_MAX: Final = 64
_LZ4_FAST: Final = 1
# Java readers know only the linked form's opposite: blocks that stand alone.
_LZ4_LINKED_BLOCKS: Final = False

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = Struct(">i")
# Three bytes of raw snappy copy at most 64; a header that promises more than this per byte lies.
_SNAPPY_RATIO_MAX: Final = 22

_FIRST_GUESS_BYTES: Final = 64 * 1024
_FIRST_GUESS_RATIO: Final = 8
_GROWTH: Final = 4
_OUTPUT_FULL: Final = "failed to write whole buffer"

_DecompressInto = Callable[[Buffer, bytearray], int]


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(BrokerError):  # noqa: N818 - named for the fact it reports
    """The compressed bytes cannot be inflated. The batch's checksum was right, so sending it again will not help."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        super().__init__(code, message)


class InflatedTooLarge(BadCompression):
    """Inflating would take more than the caller allows."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            f"the records inflate to more than {max_bytes} bytes: send smaller batches", ErrorCode.MESSAGE_TOO_LARGE
        )


class UnknownCodec(BrokerError):  # noqa: N818 - named for the fact it reports
    def __init__(self, number: int) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression codec {number} is not known: use gzip (1), snappy (2), lz4 (3) or zstd (4)",
        )


def codec_of(number: int) -> Codec:
    try:
        return Codec(number)
    except ValueError:
        raise UnknownCodec(number) from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`level` means what Kafka's compression.<codec>.level means; None is Kafka's default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return zlib.compress(data, GZIP_DEFAULT_LEVEL if level is None else level, _GZIP_WBITS)
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    return bytes(cramjam.zstd.compress(data, ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """The inflated bytes, at most `max_bytes` of them, else InflatedTooLarge; damaged input is BadCompression."""
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise InflatedTooLarge(max_bytes)
        return bytes(data)
    if codec == Codec.GZIP:
        return _decompress_gzip(data, max_bytes)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Codec.LZ4:
        return _decompress_growing("lz4", cramjam.lz4.decompress_into, data, max_bytes)
    return _decompress_growing("zstd", cramjam.zstd.decompress_into, data, max_bytes)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # As in Kafka, the default level (9) stands for the fast compressor, any other for the high-compression one.
    chosen = _LZ4_FAST if level is None or level == LZ4_DEFAULT_LEVEL else level
    compressor = cramjam.lz4.Compressor(level=chosen, content_checksum=False, block_linked=_LZ4_LINKED_BLOCKS)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    """All members, one after the other, as Java's reader does."""
    parts: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            # One byte more than allowed tells a full buffer from an overflowing one; 0 would mean no limit.
            part = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise BadCompression(f"gzip: {error}") from None
        if len(part) > room:
            raise InflatedTooLarge(max_bytes)
        if not member.eof:
            raise BadCompression("gzip: the data ends too early")
        parts.append(part)
        room -= len(part)
        rest = member.unused_data
        if not rest:
            return b"".join(parts)
    raise BadCompression(f"gzip: more than {_GZIP_MEMBERS_MAX} members in one batch")


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    """Xerial's blocks, or one raw block when the magic is not there."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, max_bytes, max_bytes)
    parts: list[bytes] = []
    room = max_bytes
    end = len(view)
    position = len(_XERIAL_HEADER)
    while position != end:
        if position + _INT32.size > end:
            raise BadCompression("snappy: the data ends inside a block's length")
        block_start = position + _INT32.size
        length = _INT32.unpack_from(view, position)[0]
        if not 0 < length <= end - block_start:
            raise BadCompression(f"snappy: a block claims {length} bytes where {end - block_start} are left")
        part = _decompress_raw_snappy(view[block_start : block_start + length], room, max_bytes)
        parts.append(part)
        room -= len(part)
        position = block_start + length
    return b"".join(parts)


def _decompress_raw_snappy(block: memoryview, room: int, max_bytes: int) -> bytes:
    """Raw snappy begins with its inflated length, so nothing is allocated for a length that cannot be right."""
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_RATIO_MAX * len(block):
            raise BadCompression(f"snappy: {len(block)} bytes cannot inflate to the claimed {claimed}")
        if claimed > room:
            raise InflatedTooLarge(max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BadCompression(str(error)) from None


def _decompress_growing(name: str, decompress_into: _DecompressInto, data: Buffer, max_bytes: int) -> bytes:
    """Inflate into a buffer of our own size, since frames need not tell theirs; a larger one if that was too small.

    The first guess is right for ordinary records. Only what really inflates that far makes us allocate more.
    """
    size = min(max_bytes, max(_FIRST_GUESS_BYTES, len(data) * _FIRST_GUESS_RATIO))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise BadCompression(f"{name}: {error}") from None
            if size >= max_bytes:
                raise InflatedTooLarge(max_bytes) from None
            size = min(max_bytes, size * _GROWTH)
        else:
            return bytes(memoryview(output)[:written])
