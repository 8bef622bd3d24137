"""Protobuf, with schemas in a registry. Needs protobuf (the `protobuf` extra).

Without a registry nothing of this is needed: `value_serializer=Order.SerializeToString` and
`value_deserializer=Order.FromString` do.
"""

from __future__ import annotations

import asyncio
import base64
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from tidelog.client.errors import NeedsPackage
from tidelog.client.serializers.framing import message_indexes, prefix, read_message_indexes, unframe
from tidelog.client.serializers.registry import Reference, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.serializers.registry import SchemaRegistry

P = TypeVar("P")

_BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every registry knows by itself."""


class ProtobufSerializer(Generic[P]):
    """Writes messages of one generated class."""

    def __init__(
        self,
        registry: SchemaRegistry,
        message: type[P],
        *,
        part: Literal["key", "value"] = "value",
        subject: Callable[[str], str] | None = None,
        register: bool = True,
    ) -> None:
        """`subject` names where a topic's schema is kept, by default `<topic>-key` or `<topic>-value`. With
        `register=False` the schema must be there already."""
        self._descriptor = _descriptor(message)
        self._indexes = message_indexes(_path(self._descriptor))
        self._message = message
        self._registry = registry
        self._subject = subject or (lambda topic: f"{topic}-{part}")
        self._register = register
        self._prefixes: dict[str, bytes] = {}

    async def prepare(self, topic: str) -> None:
        """Learns the schema's id. RegistryError says why there is none."""
        schema = await self._schema(self._descriptor.file)
        ask = self._registry.register_soon if self._register else self._registry.look_up_soon
        self._prefixes[topic] = prefix(await ask(self._subject(topic), schema)) + self._indexes

    def serialize(self, topic: str, value: P) -> bytes:
        if not isinstance(value, self._message):
            raise TypeError(f"a {self._message.__name__} is needed, not a {type(value).__name__}")
        written: Any = value
        return self._prefixes[topic] + bytes(written.SerializeToString())

    async def _schema(self, file: Any) -> Schema:
        """With all that it imports registered before it, each file under its own name."""
        references: list[Reference] = []
        for needed in file.dependencies:
            if not needed.name.startswith(_BUILT_IN):
                schema = await self._schema(needed)
                if self._register:
                    await self._registry.register_soon(needed.name, schema)
                version = await asyncio.to_thread(self._registry.version, needed.name, schema)
                references.append(Reference(needed.name, needed.name, version))
        return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF", tuple(references))


class ProtobufDeserializer(Generic[P]):
    """Reads messages of one generated class, whatever version of its schema they were written with.

    Protobuf's own rules make that possible, so that no schema is fetched.
    """

    def __init__(self, message: type[P]) -> None:
        self._path = _path(_descriptor(message))
        self._message: Any = message

    def __call__(self, data: bytes) -> P:
        path, payload = read_message_indexes(unframe(data).payload)
        if path != self._path:
            raise ValueError(f"it is the message {path} of its file, not {self._path}, a {self._message.__name__}")
        message: P = self._message.FromString(bytes(payload))
        return message


def _descriptor(message: type[Any]) -> Any:
    try:
        import_module("google.protobuf")
    except ImportError as error:
        raise NeedsPackage("Protobuf", "protobuf", "protobuf") from error
    descriptor = getattr(message, "DESCRIPTOR", None)
    if descriptor is None:
        raise TypeError(f"{message!r} is not a class that protoc has generated")
    return descriptor


def _path(descriptor: Any) -> tuple[int, ...]:
    """The message's place among its siblings, from the outermost on."""
    parent = descriptor.containing_type
    siblings = list(descriptor.file.message_types_by_name.values()) if parent is None else list(parent.nested_types)
    here = next(place for place, each in enumerate(siblings) if each.full_name == descriptor.full_name)
    return (here,) if parent is None else (*_path(parent), here)
