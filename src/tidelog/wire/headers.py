"""Request and response headers.

A request header is key, version, correlation id and client id; flexible versions add tags, but the client id keeps its
old two-byte length (KIP-482). A response header is the correlation id, with tags in flexible versions; except that
replies to ApiVersions never have them, since a client reads that reply before it knows what the broker speaks.
The very first form of a request header had no client id; ControlledShutdown v0 kept it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.wire.api_keys import ApiKey
from tidelog.wire.codec import (
    DECODER_FAILURES,
    ENCODER_FAILURES,
    cannot_decode,
    cannot_encode,
    decoder_of,
    encode,
    encoder_of,
)
from tidelog.wire.errors import DecodeError, EncodeError
from tidelog.wire.primitives import read_uvarint, skip_tags, too_short

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.wire.codec import Splice
    from tidelog.wire.declare import Message

_BARE = struct.Struct(">hhi")
_FIXED = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")

_unpack_fixed = _FIXED.unpack_from
_pack_start = _LENGTH_AND_CORRELATION.pack_into
_new_tuple = tuple.__new__


class RequestHeader(NamedTuple):
    api: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int
    """Where the header's fixed part ends; `skip_header_tags` steps over what flexible versions add."""


def read_request_header(frame: memoryview) -> RequestHeader:
    """Reads what every version of the header has in common. `frame` is a request without its length."""
    try:
        api, version, correlation_id, length = _unpack_fixed(frame)
        if version == 0 and api == ApiKey.CONTROLLED_SHUTDOWN:
            return RequestHeader(api, version, correlation_id, None, _BARE.size)
        if length < 0:
            return RequestHeader(api, version, correlation_id, None, 10)
        end = 10 + length
        if end > len(frame):
            raise too_short(length, len(frame) - 10)
        # As `RequestHeader(...)`, but twice as fast.
        return _new_tuple(RequestHeader, (api, version, correlation_id, str(frame[10:end], "utf-8"), end))
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"a request header is cut short or malformed: {error}") from error


def skip_header_tags(frame: memoryview, position: int) -> int:
    try:
        count, position = read_uvarint(frame, position)
        return skip_tags(frame, position, count, len(frame)) if count else position
    except IndexError as error:
        raise DecodeError("a request header ends before its tags") from error


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """A whole request frame, its length included."""
    out = bytearray(4)
    if version == 0 and message.API == ApiKey.CONTROLLED_SHUTDOWN:
        out += _BARE.pack(message.API, version, correlation_id)
    else:
        client = b"" if client_id is None else client_id.encode()
        out += _FIXED.pack(message.API, version, correlation_id, -1 if client_id is None else len(client))
        out += client
    if version in message.FLEXIBLE:
        out.append(0)
    splices: list[Splice] = []
    encode(message, version, out, splices)
    if splices:
        raise EncodeError("records in files go into replies, not into requests")
    _LENGTH.pack_into(out, 0, len(out) - 4)
    return out


def encode_response(message: Message, version: int, correlation_id: int) -> tuple[bytearray, list[Splice]]:
    """A whole reply frame, its length included, and the records that belong into it."""
    return reply_writer(type(message), version)(message, correlation_id)


def request_reader(cls: type[Message], version: int) -> Callable[[memoryview, int], Any]:
    """A function that reads the requests of one kind, from the end of their headers' fixed part: all that is known
    beforehand is looked up once."""
    decoder = decoder_of(cls, version)
    flexible = version in cls.FLEXIBLE

    def read(frame: memoryview, position: int) -> Any:
        try:
            if flexible:
                position = skip_header_tags(frame, position) if frame[position] else position + 1
            return decoder(frame, position, len(frame))[0]
        except DECODER_FAILURES as error:
            raise cannot_decode(cls, version, error) from error

    return read


def reply_writer(cls: type[Message], version: int) -> Callable[[Message, int], tuple[bytearray, list[Splice]]]:
    """What `encode_response` does, for replies of one kind: all that is known beforehand is looked up once."""
    encoder = encoder_of(cls, version)
    head = bytes(9) if _has_tags(cls, version) else bytes(8)

    def write(message: Message, correlation_id: int) -> tuple[bytearray, list[Splice]]:
        out = bytearray(head)
        splices: list[Splice] = []
        try:
            encoder(message, out, splices)
        except ENCODER_FAILURES as error:
            raise cannot_encode(cls, version, error) from error
        size = len(out) - 4
        for _position, records in splices:
            size += records.size
        _pack_start(out, 0, size, correlation_id)
        return out, splices

    return write


def body_framer(cls: type[Message], version: int) -> Callable[[bytes, int], bytes]:
    """A function that makes whole reply frames of bodies that are encoded already."""
    tags = b"\x00" if _has_tags(cls, version) else b""
    overhead = 4 + len(tags)

    def frame(body: bytes, correlation_id: int) -> bytes:
        return _LENGTH_AND_CORRELATION.pack(overhead + len(body), correlation_id) + tags + body

    return frame


def _has_tags(cls: type[Message], version: int) -> bool:
    return version in cls.FLEXIBLE and ApiKey.API_VERSIONS != cls.API


def response_body(cls: type[Message], frame: memoryview, version: int) -> int:
    """Where the body starts in a reply frame (without its length)."""
    if _has_tags(cls, version):
        return skip_header_tags(frame, 4)
    return 4
