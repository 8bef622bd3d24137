"""Rows as records: their key, value, headers."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, StructField, StructType

from tidelog.client.serializers.framing import prefix
from tidelog.client.serializers.registry import Schema, SchemaRegistry
from tidelog.pipelines.decoding.protobuf_messages import message_class, with_message
from tidelog.pipelines.definition.errors import PipelineError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.definition.formats import Format
    from tidelog.pipelines.definition.sinks import TopicWrite

DELETED: Final = "_deleted"
_IN_PYTHON: Final = ("avro", "protobuf")


def encode(rows: DataFrame, writes: TopicWrite, beside: Path) -> DataFrame:
    """PipelineError names a column that is missing."""
    if writes.value is None:
        return rows
    for name in (*writes.key, *writes.headers):
        if name not in rows.columns:
            raise PipelineError(f"there is no column {name!r} for the record: {nearest(name, rows.columns)}")
    kept = [name for name in rows.columns if name not in writes.headers and not name.startswith("_")]
    columns: list[Column] = []
    if writes.key:
        key = _key(writes.key)
        columns.append((_never_null(key, writes) if writes.compacted else key).alias("key"))
    if writes.headers:
        columns.append(_headers(writes.headers).alias("headers"))
    value = _value(rows, kept, writes.value)
    if DELETED in rows.columns:
        value = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), value)
    records = rows.select(*columns, value.alias("value"))
    return _in_python(records, writes.value, writes.topic or "", beside) if writes.value.kind in _IN_PYTHON else records


def _key(names: tuple[str, ...]) -> Column:
    """One column as its text, several as a JSON object."""
    if len(names) == 1:
        return F.col(f"`{names[0]}`").cast("string")
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), {"ignoreNullFields": "false"})


def _never_null(key: Column, writes: TopicWrite) -> Column:
    """Brokers refuse whole batches with a record that has no key, and say less."""
    told = f"row without a key for table {writes.topic}: {writes.key[0]} is null"
    return F.coalesce(key, F.raise_error(F.lit(told)).cast("string"))


def _headers(names: tuple[str, ...]) -> Column:
    pairs = [
        F.struct(F.lit(name).alias("key"), F.col(f"`{name}`").cast("string").cast("binary").alias("value"))
        for name in names
    ]
    return F.array(*pairs)


def _value(rows: DataFrame, kept: list[str], given: Format) -> Column:
    """Of formats that Python writes: all that they are made of."""
    if given.kind in {"text", "binary"}:
        if given.column not in rows.columns:
            raise PipelineError(
                f"there is no column {given.column!r} for the value: {nearest(str(given.column), kept)}"
            )
        return F.col(f"`{given.column}`").cast("string" if given.kind == "text" else "binary").cast("binary")
    whole = F.struct(*(F.col(f"`{name}`") for name in kept))
    return whole if given.kind in _IN_PYTHON else F.to_json(whole, {"ignoreNullFields": "false"}).cast("binary")


def _in_python(records: DataFrame, given: Format, topic: str, beside: Path) -> DataFrame:
    fields = [StructField("value", BinaryType()) if field.name == "value" else field for field in records.schema]
    return records.mapInArrow(encoding(given, topic, beside), StructType(fields))


def encoding(given: Format, topic: str, beside: Path) -> Encoding:
    """With all that workers need: they do not have the files beside the pipeline."""
    schema, begin = _schema_and_prefix(given, topic, beside)
    return Encoding(with_message(given, beside) if given.kind == "protobuf" else given, schema, begin)


def _schema_and_prefix(given: Format, topic: str, beside: Path) -> tuple[str, bytes]:
    if given.kind == "protobuf":
        if given.framed:
            raise PipelineError("protobuf is written without a registry: leave `framed` and `registry` out")
        return "", b""
    if given.schema is None:
        raise PipelineError("avro is written with a schema that is declared")
    text = given.schema
    if text.lstrip()[:1] not in {"{", "["}:
        try:
            text = (beside / text).read_text(encoding="utf-8")
        except OSError as error:
            raise PipelineError(f"the Avro schema {text} cannot be read: {error.strerror}") from None
    if given.registry is None:
        return text, b""
    return text, prefix(SchemaRegistry(given.registry).register(f"{topic}-value", Schema(text)))


@dataclass(frozen=True)
class Encoding:
    """Writes the values of whole Arrow batches."""

    format: Format
    schema: str
    prefix: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        write = self.writer()
        for batch in batches:
            at = batch.schema.names.index("value")
            values = [None if row is None else write(row) for row in batch.column(at).to_pylist()]
            yield batch.set_column(at, "value", pa.array(values, type=pa.binary()))

    def writer(self) -> Callable[[dict[str, Any]], bytes]:
        return self._avro() if self.format.kind == "avro" else self._protobuf()

    def _avro(self) -> Callable[[dict[str, Any]], bytes]:
        avro = import_module("fastavro")
        schema = avro.parse_schema(json.loads(self.schema))

        def write(row: dict[str, Any]) -> bytes:
            out = io.BytesIO()
            out.write(self.prefix)
            avro.schemaless_writer(out, schema, row)
            return out.getvalue()

        return write

    def _protobuf(self) -> Callable[[dict[str, Any]], bytes]:
        message = message_class(self.format)
        parse = import_module("google.protobuf.json_format").ParseDict

        def write(row: dict[str, Any]) -> bytes:
            return bytes(parse(_as_json(row), message()).SerializeToString())

        return write


def _as_json(value: Any) -> Any:
    """As Protobuf's own JSON has it: what is null is left out, bytes are base64, times end in Z."""
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, Decimal) else value
