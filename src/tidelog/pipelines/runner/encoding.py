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

from tidelog.client.serializers.framing import prefix
from tidelog.client.serializers.registry import Schema, SchemaRegistry
from tidelog.pipelines.decoding.protobuf_types import message_class
from tidelog.pipelines.definition.errors import PipelineError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.definition.formats import Format
    from tidelog.pipelines.definition.sinks import TopicWrite

DELETED: Final = "_deleted"


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
        columns.append(_key(writes.key).alias("key"))
    deleted = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in rows.columns else None
    columns.append(_value(rows, kept, writes, beside, deleted).alias("value"))
    if writes.headers:
        columns.append(_headers(writes.headers).alias("headers"))
    return rows.select(*columns)


def _key(names: tuple[str, ...]) -> Column:
    """One column as its text, several as a JSON object."""
    if len(names) == 1:
        return F.col(f"`{names[0]}`").cast("string")
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), {"ignoreNullFields": "false"})


def _headers(names: tuple[str, ...]) -> Column:
    pairs = [
        F.struct(F.lit(name).alias("key"), F.col(f"`{name}`").cast("string").cast("binary").alias("value"))
        for name in names
    ]
    return F.array(*pairs)


def _value(rows: DataFrame, kept: list[str], writes: TopicWrite, beside: Path, deleted: Column | None) -> Column:
    given = writes.value
    assert given is not None
    whole = F.struct(*(F.col(f"`{name}`") for name in kept))
    if given.kind == "json":
        value = F.to_json(whole, {"ignoreNullFields": "false"}).cast("binary")
    elif given.kind in {"text", "binary"}:
        if given.column not in rows.columns:
            raise PipelineError(
                f"there is no column {given.column!r} for the value: {nearest(str(given.column), kept)}"
            )
        value = F.col(f"`{given.column}`").cast("string" if given.kind == "text" else "binary").cast("binary")
    else:
        value = _in_python(given, writes.topic or "", beside)(whole)
    return value if deleted is None else F.when(~deleted, value)


def _in_python(given: Format, topic: str, beside: Path) -> Callable[[Column], Column]:
    """Runs once for each batch of rows, in Python."""
    encoding = _Encoding(given.kind, *_schema_and_prefix(given, topic, beside), given)

    def encoded(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        write = encoding.writer()
        for batch in batches:
            yield pa.array([write(row) for row in batch.to_pylist()], type=pa.binary())

    function = import_module("pyspark.sql.functions").arrow_udf
    kinds = import_module("pyspark.sql.functions").ArrowUDFType
    made: Callable[[Column], Column] = function(encoded, "binary", kinds.SCALAR_ITER)
    return made


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
class _Encoding:
    kind: str
    schema: str
    prefix: bytes
    format: Format

    def writer(self) -> Callable[[dict[str, Any] | None], bytes | None]:
        return self._avro() if self.kind == "avro" else self._protobuf()

    def _avro(self) -> Callable[[dict[str, Any] | None], bytes | None]:
        avro = import_module("fastavro")
        schema = avro.parse_schema(json.loads(self.schema))

        def write(row: dict[str, Any] | None) -> bytes | None:
            out = io.BytesIO()
            out.write(self.prefix)
            avro.schemaless_writer(out, schema, row)
            return out.getvalue()

        return write

    def _protobuf(self) -> Callable[[dict[str, Any] | None], bytes | None]:
        message = message_class(self.format)
        parse = import_module("google.protobuf.json_format").ParseDict

        def write(row: dict[str, Any] | None) -> bytes | None:
            return bytes(parse(_as_json(row or {}), message()).SerializeToString())

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
