"""Messages: any bytes, in any version of any message, are a message or a DecodeError; a message can be written again.

The first two bytes of an input choose the message and the version, the rest is the body. Requests are also read as
whole frames, from the header on.

python fuzz/fuzz_requests.py -max_total_time=60
"""
# ruff: noqa: INP001 -- scripts, not a package

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING

import atheris

with atheris.instrument_imports(include=["tidelog"]):
    import tidelog.wire.messages
    import tidelog.wire.stored
    from tidelog.wire import codec
    from tidelog.wire.declare import Message
    from tidelog.wire.errors import DecodeError
    from tidelog.wire.headers import read_request_header, skip_header_tags

    MODULES = [
        importlib.import_module(f"{package.__name__}.{info.name}")
        for package in (tidelog.wire.messages, tidelog.wire.stored)
        for info in pkgutil.iter_modules(package.__path__)
    ]

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
]
REQUESTS = {cls.API: cls for cls in MESSAGES if cls.IS_REQUEST}


def instrument_codecs() -> None:
    """Codecs are made when first used, where the import hook does not see them; the fuzzer needs their branches."""
    for cls in MESSAGES:
        for version in cls.VERSIONS:
            decoder: Callable[..., object] = codec._compile_decoder(cls, version)  # noqa: SLF001 -- to be looked into
            codec._decoders[cls, version] = atheris.instrument_func(decoder)  # noqa: SLF001 -- as above


def decode_and_write_again(cls: type[Message], version: int, body: memoryview, position: int = 0) -> None:
    try:
        message = codec.decode(cls, body, version, position)
    except DecodeError:
        return
    written = codec.to_bytes(message, version)
    # Bytes are compared, not messages: what is not a number does not equal itself.
    assert codec.to_bytes(codec.decode(cls, written, version), version) == written


def read_as_frame(frame: memoryview) -> None:
    try:
        header = read_request_header(frame)
        cls = REQUESTS.get(header.api)
        if cls is None or header.version not in cls.VERSIONS:
            return
        body = skip_header_tags(frame, header.body) if header.version in cls.FLEXIBLE else header.body
    except DecodeError:
        return
    decode_and_write_again(cls, header.version, frame, body)


def one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    read_as_frame(memoryview(data))
    cls = MESSAGES[data[0] % len(MESSAGES)]
    versions = list(cls.VERSIONS)
    decode_and_write_again(cls, versions[data[1] % len(versions)], memoryview(data)[2:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    instrument_codecs()
    atheris.Fuzz()
