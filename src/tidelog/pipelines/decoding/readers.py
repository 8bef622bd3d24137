"""Readers of single values in Python, made in each task: Avro and Protobuf, with or without a registry."""

from __future__ import annotations

import io
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.client.serializers.framing import read_message_indexes, unframe
from tidelog.client.serializers.registry import SchemaRegistry
from tidelog.pipelines.decoding.avro_types import adapting, record_type
from tidelog.pipelines.decoding.protobuf_messages import message_class
from tidelog.pipelines.decoding.protobuf_types import message_type, reading
from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from tidelog.pipelines.definition.formats import Format


def columns_of(given: Format) -> StructType:
    """What the values of a format whose schema is known consist of."""
    if given.kind == "avro":
        return record_type(_avro_schema(given))
    return message_type(message_class(given).DESCRIPTOR)


def reader_of(given: Format) -> Callable[[bytes], dict[str, Any]]:
    """What it raises says why a value is malformed."""
    return _avro_reader(given) if given.kind == "avro" else _protobuf_reader(given)


def _avro_schema(given: Format) -> Any:
    if given.schema is None:
        raise PipelineError("the Avro schema is not known yet")
    try:
        return json.loads(given.schema)
    except ValueError as error:
        raise PipelineError(f"this is no Avro schema: {error}") from None


def _avro_reader(given: Format) -> Callable[[bytes], dict[str, Any]]:
    avro = import_module("fastavro")
    schema = _avro_schema(given)
    wanted = avro.parse_schema(schema)
    adapt = adapting(schema, {}) or (lambda value: value)
    if given.registry is None:

        def plain(data: bytes) -> dict[str, Any]:
            file = io.BytesIO(data)
            value = avro.schemaless_reader(file, wanted)
            if file.tell() != len(data):
                raise ValueError(f"{len(data) - file.tell()} bytes are left over after the Avro value")
            record: dict[str, Any] = adapt(value)
            return record

        return plain

    registry = SchemaRegistry(given.registry)
    known: dict[int, Any] = {}

    def framed(data: bytes) -> dict[str, Any]:
        schema_id, payload = unframe(data)
        written = known.get(schema_id)
        if written is None:
            known[schema_id] = written = avro.parse_schema(json.loads(registry.schema(schema_id).text))
        record: dict[str, Any] = adapt(avro.schemaless_reader(io.BytesIO(payload), written, wanted))
        return record

    return framed


def _protobuf_reader(given: Format) -> Callable[[bytes], dict[str, Any]]:
    message = message_class(given)
    read = reading(message.DESCRIPTOR)
    if not given.framed:
        return lambda data: read(message.FromString(data))
    return lambda data: read(message.FromString(bytes(read_message_indexes(unframe(data).payload)[1])))
