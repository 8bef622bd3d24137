"""Avro, with schemas in a registry. Needs fastavro (the `avro` extra)."""

from __future__ import annotations

import io
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from tidelog.client.errors import NeedsPackage
from tidelog.client.serializers.framing import prefix, unframe
from tidelog.client.serializers.registry import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.serializers.registry import SchemaRegistry

_REMEMBERED_MAX: Final = 1000


def _fastavro() -> Any:
    try:
        return import_module("fastavro")
    except ImportError as error:
        raise NeedsPackage("Avro", "fastavro", "avro") from error


class AvroSerializer:
    """Writes what the schema describes, such as dicts for records."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | list[Any],
        *,
        part: Literal["key", "value"] = "value",
        subject: Callable[[str], str] | None = None,
        register: bool = True,
    ) -> None:
        """`subject` names where a topic's schema is kept, by default `<topic>-key` or `<topic>-value`. With
        `register=False` the schema must be there already."""
        self._avro = _fastavro()
        parsed = json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in {"{", "[", '"'} else schema
        self._parsed = self._avro.parse_schema(parsed)
        self._schema = Schema(json.dumps(parsed, separators=(",", ":")))
        self._registry = registry
        self._subject = subject or (lambda topic: f"{topic}-{part}")
        self._register = register
        self._prefixes: dict[str, bytes] = {}

    async def prepare(self, topic: str) -> None:
        """Learns the schema's id. RegistryError says why there is none."""
        ask = self._registry.register_soon if self._register else self._registry.look_up_soon
        self._prefixes[topic] = prefix(await ask(self._subject(topic), self._schema))

    def serialize(self, topic: str, value: Any) -> bytes:
        out = io.BytesIO()
        out.write(self._prefixes[topic])
        self._avro.schemaless_writer(out, self._parsed, value)
        return out.getvalue()


class AvroDeserializer:
    """Reads each value with the schema it was written with, and as `schema` wants it if one is given.

    Schemas are fetched when they are first seen; that call blocks, once for each.
    """

    def __init__(self, registry: SchemaRegistry, schema: str | dict[str, Any] | list[Any] | None = None) -> None:
        self._avro = _fastavro()
        self._registry = registry
        parsed = json.loads(schema) if isinstance(schema, str) else schema
        self._wanted = None if parsed is None else self._avro.parse_schema(parsed)
        self._known: dict[int, Any] = {}

    def __call__(self, data: bytes) -> Any:
        schema_id, payload = unframe(data)
        written = self._known.get(schema_id)
        if written is None:
            written = self._fetch(schema_id)
        return self._avro.schemaless_reader(io.BytesIO(payload), written, self._wanted)

    def _fetch(self, schema_id: int) -> Any:
        found = self._registry.schema(schema_id)
        if found.kind != "AVRO":
            raise ValueError(f"schema {schema_id} is of type {found.kind}, not AVRO")
        if len(self._known) >= _REMEMBERED_MAX:
            self._known.clear()
        self._known[schema_id] = parsed = self._avro.parse_schema(json.loads(found.text))
        return parsed
