"""The columns of a topic, as Spark's Kafka source has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.pipelines.source.errors import SourceError
from tidelog.pipelines.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_FIELDS: Final = {
    field.name: field
    for field in (
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    )
}


def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns that these options ask for; OptionError when the options make no sense."""
    return StructType([_FIELDS[name] for name in SourceOptions.parse(options).columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema names, which may be the user's own; SourceError for one that topics do not have."""
    for field in schema.fields:
        known = _FIELDS.get(field.name)
        if known is None:
            raise SourceError(
                f"topics have no column {field.name}, only {', '.join(_FIELDS)}: read those, and make others of `value`"
            )
        if known.dataType != field.dataType:
            raise SourceError(
                f"column {field.name} is of type {known.dataType.simpleString()}, not "
                f"{field.dataType.simpleString()}: leave the schema out, and cast the column"
            )
        if not field.nullable:
            raise SourceError(f"column {field.name} is nullable: leave the schema out")
    return tuple(schema.fieldNames())
