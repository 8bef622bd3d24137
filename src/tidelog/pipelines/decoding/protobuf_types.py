"""Protobuf's messages as Spark's types, and as dicts that Arrow takes. Pure."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_DEPTH_MAX: Final = 32


def message_type(descriptor: Any, depth: int = 0) -> StructType:
    if depth > _DEPTH_MAX:
        raise PipelineError(f"{descriptor.full_name} contains itself, which Spark's types cannot")
    return StructType([StructField(field.name, _field_type(field, depth)) for field in descriptor.fields])


def _field_type(field: Any, depth: int) -> DataType:
    if _is_map(field):
        parts = field.message_type.fields_by_name
        return MapType(_single_type(parts["key"], depth), _single_type(parts["value"], depth))
    single = _single_type(field, depth)
    return ArrayType(single) if _is_repeated(field) else single


def _single_type(field: Any, depth: int) -> DataType:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return TimestampType()
        if name in _WRAPPERS:
            return _single_type(field.message_type.fields_by_name["value"], depth)
        return message_type(field.message_type, depth + 1)
    kinds: dict[int, DataType] = {
        field.CPPTYPE_INT32: IntegerType(),
        field.CPPTYPE_INT64: LongType(),
        field.CPPTYPE_UINT32: LongType(),
        field.CPPTYPE_UINT64: DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: DoubleType(),
        field.CPPTYPE_FLOAT: FloatType(),
        field.CPPTYPE_BOOL: BooleanType(),
        field.CPPTYPE_ENUM: StringType(),
        field.CPPTYPE_STRING: BinaryType() if field.type == field.TYPE_BYTES else StringType(),
    }
    return kinds[field.cpp_type]


def reading(descriptor: Any) -> Callable[[Any], dict[str, Any]]:
    """What makes a dict of a message. A field that was not set and knows it is None."""
    parts = [
        (field.name, _getting(field), field.has_presence and not _is_repeated(field)) for field in descriptor.fields
    ]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if knows and not message.HasField(name) else get(getattr(message, name))
            for name, get, knows in parts
        }

    return read


def _getting(field: Any) -> Callable[[Any], Any]:
    if _is_map(field):
        value = _single_getting(field.message_type.fields_by_name["value"])
        return lambda given: [(key, value(given[key])) for key in given]
    single = _single_getting(field)
    return (lambda given: [single(each) for each in given]) if _is_repeated(field) else single


def _single_getting(field: Any) -> Callable[[Any], Any]:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return lambda given: given.ToDatetime(tzinfo=UTC)
        if name in _WRAPPERS:
            return lambda given: given.value
        return reading(field.message_type)
    if field.cpp_type == field.CPPTYPE_ENUM:
        names = field.enum_type.values_by_number
        return lambda given: names[given].name if given in names else str(given)
    return lambda given: given


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


def _is_map(field: Any) -> bool:
    return bool(
        field.cpp_type == field.CPPTYPE_MESSAGE and _is_repeated(field) and field.message_type.GetOptions().map_entry
    )
