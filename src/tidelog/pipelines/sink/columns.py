"""Which columns a sink takes, and of which types. Decided when the query is planned, by the schema alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES: Final = (StringType, BinaryType)
_WHOLE: Final = (ByteType, ShortType, IntegerType)


class SchemaMismatch(ValueError):  # noqa: N818 - named for the fact it reports
    """Rows that cannot become records. The message is one line, and names the column and both types."""


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = {part.name: part.dataType for part in kind.elementType.fields}
    return (
        parts.keys() == {"key", "value"} and isinstance(parts["key"], StringType) and isinstance(parts["value"], _BYTES)
    )


_COLUMNS: Final[dict[str, tuple[str, Callable[[DataType], bool]]]] = {
    "key": ("string or binary", lambda kind: isinstance(kind, _BYTES)),
    "value": ("string or binary", lambda kind: isinstance(kind, _BYTES)),
    "headers": ("array<struct<key:string,value:binary>>", _is_headers),
    "topic": ("string", lambda kind: isinstance(kind, StringType)),
    "partition": ("int", lambda kind: isinstance(kind, _WHOLE)),
    "timestamp": ("timestamp", lambda kind: isinstance(kind, TimestampType | LongType)),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """SchemaMismatch unless every row can become a record. Columns of other names are left out, as Spark's own Kafka
    sink does, so that what was read can be written."""
    kinds = {part.name: part.dataType for part in schema.fields}
    if "value" not in kinds:
        near = next((name for name in kinds if name.lower() == "value"), None)
        hint = f"rename {near!r}" if near else f"make one, such as to_json(struct(*)) AS value, of {', '.join(kinds)}"
        raise SchemaMismatch(f"there is no column 'value', which becomes the record's value: {hint}")
    for name, (expected, fits) in _COLUMNS.items():
        if name in kinds and not fits(kinds[name]) and not (name == "topic" and topic is not None):
            raise SchemaMismatch(f"column {name!r} is {kinds[name].simpleString()}, but must be {expected}: cast it")
    if topic is None and "topic" not in kinds:
        raise SchemaMismatch("there is no topic to write to: set the option topic, or add a column 'topic'")
