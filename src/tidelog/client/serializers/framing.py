"""The bytes in front of a value whose schema is in a registry: a zero, and the schema's id.

Protobuf adds the way to the message inside the schema's file: the place among its siblings at each level of nesting.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.varint import INT32_BYTES_MAX, from_raw, read_raw, write_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = 0
_PREFIX = Struct(">bi")
_DEPTH_MAX = 64
_FIRST = (0,)


class Framed(NamedTuple):
    schema_id: int
    payload: memoryview


def prefix(schema_id: int) -> bytes:
    return _PREFIX.pack(MAGIC, schema_id)


def unframe(data: bytes) -> Framed:
    """ValueError says why this was not written with a schema registry."""
    if len(data) < _PREFIX.size:
        raise ValueError(f"{len(data)} bytes are too few for the id of a schema: it was written without a registry")
    magic, schema_id = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic} instead of 0: it was written without a schema registry")
    return Framed(schema_id, memoryview(data)[_PREFIX.size :])


def message_indexes(path: Sequence[int]) -> bytes:
    """`path` is never empty. The first message of a file, by far the most frequent, is one zero."""
    out = bytearray()
    if tuple(path) == _FIRST:
        write_varint(out, 0)
        return bytes(out)
    write_varint(out, len(path))
    for index in path:
        write_varint(out, index)
    return bytes(out)


def read_message_indexes(payload: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """The path and what comes after it; ValueError if it makes no sense."""
    head = bytes(payload[: (_DEPTH_MAX + 1) * INT32_BYTES_MAX])
    try:
        depth, at = _read(head, 0)
        if depth == 0:
            return _FIRST, payload[at:]
        if not 0 < depth <= _DEPTH_MAX:
            raise ValueError(f"{depth} is no depth of nesting")
        path = []
        for _ in range(depth):
            index, at = _read(head, at)
            path.append(index)
    except IndexError:
        raise ValueError("the way to the message ends too early") from None
    return tuple(path), payload[at:]


def _read(data: bytes, at: int) -> tuple[int, int]:
    raw, after = read_raw(data, at, INT32_BYTES_MAX)
    return from_raw(raw), after
