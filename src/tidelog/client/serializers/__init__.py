"""Serializers and deserializers: text, JSON, and Avro and Protobuf framed as with Confluent's schema registry.

    registry = SchemaRegistry("http://localhost:8081")
    Producer(..., key_serializer=to_text, value_serializer=AvroSerializer(registry, schema))
    Consumer(..., key_deserializer=from_text, value_deserializer=AvroDeserializer(registry))

Names are loaded when they are first used, and the packages they need with them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.serializers.avro import AvroDeserializer, AvroSerializer
    from tidelog.client.serializers.plain import from_json, from_text, to_json, to_text
    from tidelog.client.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer
    from tidelog.client.serializers.registry import RegistryError, SchemaRegistry

_HOMES = {
    "AvroDeserializer": "avro",
    "AvroSerializer": "avro",
    "ProtobufDeserializer": "protobuf",
    "ProtobufSerializer": "protobuf",
    "RegistryError": "registry",
    "SchemaRegistry": "registry",
    "from_json": "plain",
    "from_text": "plain",
    "to_json": "plain",
    "to_text": "plain",
}

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RegistryError",
    "SchemaRegistry",
    "from_json",
    "from_text",
    "to_json",
    "to_text",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
