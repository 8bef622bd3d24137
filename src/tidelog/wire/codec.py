"""Encodes and decodes messages with codecs that are compiled when a version is first used."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.wire import primitives
from tidelog.wire.declare import Message, Spliced
from tidelog.wire.errors import DecodeError, EncodeError, WireError
from tidelog.wire.generate import decoder_source, encoder_source

M = TypeVar("M", bound=Message)

Splice = tuple[int, Spliced]
"""At this position of the encoded bytes these records belong; their bytes are still where they are stored."""

Encoder = Callable[[Message, bytearray, list[Splice]], None]
Decoder = Callable[[memoryview, int, int], tuple[Any, int]]

ENCODER_FAILURES = (struct.error, AttributeError, TypeError, UnicodeEncodeError)
DECODER_FAILURES = (struct.error, IndexError, UnicodeDecodeError)

_encoders: dict[tuple[type[Message], int], Encoder] = {}
_decoders: dict[tuple[type[Message], int], Decoder] = {}


def encode(message: Message, version: int, out: bytearray, splices: list[Splice]) -> None:
    """Appends `message` to `out`. Records that stay in a file are appended to `splices` instead."""
    encoder = _encoders.get((type(message), version)) or _compile_encoder(type(message), version)
    try:
        encoder(message, out, splices)
    except ENCODER_FAILURES as error:
        raise cannot_encode(type(message), version, error) from error


def to_bytes(message: Message, version: int) -> bytes:
    """The encoding of a message that holds all its bytes in memory."""
    out: bytearray = bytearray()
    splices: list[Splice] = []
    encode(message, version, out, splices)
    if splices:
        raise EncodeError(f"{type(message).__name__} has records in files; they must be sent, not copied")
    return bytes(out)


def decode(cls: type[M], buffer: memoryview | bytes | bytearray, version: int, position: int = 0) -> M:
    """Reads a message. Bytes after it are ignored, as Kafka does: some clients leave a few.

    Records fields are views into `buffer`; everything else is copied out.
    """
    decoder = _decoders.get((cls, version)) or _compile_decoder(cls, version)
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        message, _end = decoder(view, position, len(view))
    except DECODER_FAILURES as error:
        raise cannot_decode(cls, version, error) from error
    result: M = message
    return result


def encoder_of(cls: type[Message], version: int) -> Encoder:
    """The compiled function itself, for who encodes many. It fails with ENCODER_FAILURES."""
    return _encoders.get((cls, version)) or _compile_encoder(cls, version)


def decoder_of(cls: type[Message], version: int) -> Decoder:
    """The compiled function itself, for who decodes many. It fails with DECODER_FAILURES, or with a DecodeError."""
    return _decoders.get((cls, version)) or _compile_decoder(cls, version)


def cannot_encode(cls: type[Message], version: int, error: Exception) -> EncodeError:
    return EncodeError(f"{cls.__name__} v{version} cannot be encoded: {error}")


def cannot_decode(cls: type[Message], version: int, error: Exception) -> DecodeError:
    return DecodeError(f"{cls.__name__} v{version} is cut short or malformed: {error}")


def _compile_encoder(cls: type[Message], version: int) -> Encoder:
    source, names = encoder_source(_checked(cls, version, EncodeError), version)
    encoder: Encoder = _compile(f"<wire {cls.__name__} v{version} encode>", source, names, "encode")
    _encoders[cls, version] = encoder
    return encoder


def _compile_decoder(cls: type[Message], version: int) -> Decoder:
    source, names = decoder_source(_checked(cls, version, DecodeError), version)
    decoder: Decoder = _compile(f"<wire {cls.__name__} v{version} decode>", source, names, "decode")
    _decoders[cls, version] = decoder
    return decoder


def _checked(cls: type[Message], version: int, error: type[WireError]) -> type[Message]:
    if version not in cls.VERSIONS:
        raise error(f"{cls.__name__} has versions {cls.VERSIONS.first} to {cls.VERSIONS.last}, not {version}")
    return cls


def _compile(title: str, source: str, names: dict[str, Any], function: str) -> Any:
    scope: dict[str, Any] = {
        "pack": struct.pack,
        "unpack_from": struct.unpack_from,
        "read_uvarint": primitives.read_uvarint,
        "write_uvarint": primitives.write_uvarint,
        "skip_tags": primitives.skip_tags,
        "too_short": primitives.too_short,
        "bad_count": primitives.bad_count,
        "null_refused": primitives.null_refused,
        "wrong_tag_size": primitives.wrong_tag_size,
        "not_in_version": primitives.not_in_version,
    }
    for name, value in names.items():
        if name.startswith("unpack_"):
            scope[name] = struct.Struct(value).unpack_from
        elif name.startswith("pack_"):
            scope[name] = struct.Struct(value).pack
        else:
            scope[name] = value
    exec(compile(source, title, "exec"), scope)  # noqa: S102 -- source made from our own declarations
    # Tracebacks through a codec show its lines.
    linecache.cache[title] = (len(source), None, source.splitlines(keepends=True), title)
    return scope[function]
