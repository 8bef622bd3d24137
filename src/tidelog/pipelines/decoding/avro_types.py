"""Avro's types as Spark's, and values as Arrow takes them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "time-millis": StringType(),
    "time-micros": StringType(),
    "uuid": StringType(),
}


def record_type(schema: Any) -> StructType:
    """Of a whole value, which is a record."""
    found = spark_type(schema, {})
    if not isinstance(found, StructType):
        raise PipelineError("the Avro schema of a value is a record")
    return found


def spark_type(schema: Any, named: dict[str, Any]) -> DataType:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, list):
        return spark_type(_only(schema), named)
    if isinstance(kind, dict | list):
        return spark_type(kind, named)
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if isinstance(schema, dict) and schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if kind in {"record", "enum", "fixed"}:
        named[schema["name"]] = named[schema["name"].rpartition(".")[2]] = schema
    if kind == "record":
        return StructType([StructField(each["name"], spark_type(each["type"], named)) for each in schema["fields"]])
    if kind == "array":
        return ArrayType(spark_type(schema["items"], named))
    if kind == "map":
        return MapType(StringType(), spark_type(schema["values"], named))
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in named:
        return spark_type(named[kind], named)
    raise PipelineError(f"Avro's type {kind!r} has no counterpart in Spark")


def adapting(schema: Any, named: dict[str, Any]) -> Callable[[Any], Any] | None:
    """What turns a value as fastavro gives it into one as Arrow takes it; None: nothing has to be done."""
    if isinstance(schema, list):
        return _unless_none(adapting(_only(schema), named))
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return adapting(kind, named)
    if isinstance(schema, dict) and schema.get("logicalType") in {"uuid", "time-millis", "time-micros"}:
        return str
    if kind == "record":
        named[schema["name"]] = named[schema["name"].rpartition(".")[2]] = schema
        fields = [(each["name"], found) for each in schema["fields"] if (found := adapting(each["type"], named))]
        return (lambda record: _adapted(record, fields)) if fields else None
    if kind == "array":
        return _on_each(adapting(schema["items"], named))
    if kind == "map":
        adapt = adapting(schema["values"], named) or (lambda value: value)
        return lambda value: [(key, adapt(each)) for key, each in value.items()]
    return adapting(named[kind], named) if kind in named else None


def _unless_none(adapt: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if adapt is None else lambda value: None if value is None else adapt(value)


def _on_each(adapt: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if adapt is None else lambda values: [adapt(each) for each in values]


def _adapted(record: dict[str, Any], fields: list[tuple[str, Callable[[Any], Any]]]) -> dict[str, Any]:
    for name, adapt in fields:
        record[name] = adapt(record[name])
    return record


def _only(union: list[Any]) -> Any:
    """Of a union with null: what the value is when it is there."""
    others = [each for each in union if each != "null"]
    if len(others) != 1:
        raise PipelineError(f"an Avro union of {len(others)} types has no counterpart in Spark: {others}")
    return others[0]
