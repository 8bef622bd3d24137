"""Records of coordinators as bytes: key and value each start with the version they are written in.

The version of a key says what kind of record it is. A kind that is not known here was written by a newer release, or
belongs to a feature that is not served: it is left where it is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.decision import StoredRecord
    from tidelog.wire.declare import Message

_VERSION = struct.Struct(">h")


class RecordFormat:
    def __init__(self, kinds: Mapping[int, tuple[type[Message], type[Message]]]) -> None:
        """`kinds` gives the key and value messages by key version."""
        self._kinds = kinds

    def encode(self, record: StoredRecord) -> tuple[bytes, bytes | None]:
        key = _VERSION.pack(record.key_version) + to_bytes(record.key, record.key_version)
        if record.value is None:
            return key, None
        return key, _VERSION.pack(record.value_version) + to_bytes(record.value, record.value_version)

    def decode(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
        """None if the record is of a kind that is not known. Raises DecodeError on bytes that make no sense."""
        kind = _version_of(key)
        messages = self._kinds.get(kind)
        if messages is None:
            return None
        key_class, value_class = messages
        stored_key = decode(key_class, key, kind, 2)
        if value is None:
            return stored_key, None
        return stored_key, decode(value_class, value, _version_of(value), 2)


def _version_of(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError("a stored record is too short for its version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
