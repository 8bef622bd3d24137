"""Decodes the rows of a topic: what can be read becomes columns, what cannot keeps its bytes and has a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tidelog.pipelines.decoding.arrow_decoding import ArrowDecoding
from tidelog.pipelines.decoding.reasons import json_fault
from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.definition.formats import Format
    from tidelog.pipelines.definition.sources import OnError, Tombstones

_CORRUPT: Final = "__corrupt"
_UNREADABLE: Final = "unreadable"


@dataclass(frozen=True)
class Part:
    """The key or the value, with a format whose columns are known."""

    column: str
    format: Format
    fields: StructType

    @property
    def decoded(self) -> str:
        return f"__{self.column}"

    @property
    def error(self) -> str:
        return f"__{self.column}_error"


def decode(rows: DataFrame, parts: list[Part]) -> DataFrame:
    """Adds to each row what its parts decode to, each in one column, and their errors."""
    for part in parts:
        rows = _in_python(rows, part) if part.format.kind in {"avro", "protobuf"} else _in_spark(rows, part)
    return rows


def readable(
    rows: DataFrame, parts: list[Part], metadata: tuple[str, ...], tombstones: Tombstones, on_error: OnError
) -> DataFrame:
    """The columns that the parts consist of, and the metadata with a `_` in front."""
    errors = F.coalesce(*(F.col(part.error) for part in parts))
    if on_error == "fail":
        place = F.concat_ws("-", F.col("topic"), F.col("partition"))
        told = F.concat(F.lit("malformed record in "), place, F.lit(" at offset "), F.col("offset").cast("string"))
        rows = rows.where(
            F.when(errors.isNull(), F.lit(True)).otherwise(F.raise_error(F.concat_ws(": ", told, errors)))
        )
    else:
        rows = rows.where(errors.isNull())
    if tombstones == "drop":
        rows = rows.where(F.col("value").isNotNull())
    chosen: list[Column] = []
    for part in parts:
        chosen += [F.col(part.decoded).getField(field.name).alias(field.name) for field in part.fields]
    chosen += [F.col(name).alias(f"_{name}") for name in metadata]
    _refuse_twins([field.name for part in parts for field in part.fields])
    return rows.select(*chosen)


def unreadable(rows: DataFrame, parts: list[Part]) -> DataFrame:
    """Malformed rows as they came, and `error`: which part, and why."""
    for part in parts:
        if part.format.kind == "json":
            rows = _with_json_reasons(rows.where(F.coalesce(*(F.col(each.error) for each in parts)).isNotNull()), part)
    reasons = [F.concat(F.lit(f"{part.column}: "), F.col(part.error)) for part in parts]
    return rows.where(F.coalesce(*(F.col(part.error) for part in parts)).isNotNull()).select(
        *("key", "value", "topic", "partition", "offset", "timestamp", "headers"),
        F.concat_ws("; ", *reasons).alias("error"),
    )


def _in_spark(rows: DataFrame, part: Part) -> DataFrame:
    data = F.col(part.column)
    if part.format.kind == "binary":
        return rows.withColumn(part.decoded, F.struct(data.alias(part.fields[0].name))).withColumn(
            part.error, F.lit(None).cast("string")
        )
    if part.format.kind == "text":
        valid = F.is_valid_utf8(data.cast("string"))
        return rows.withColumn(
            part.decoded, F.struct(F.when(valid, data.cast("string")).alias(part.fields[0].name))
        ).withColumn(part.error, F.when(data.isNotNull() & ~valid, F.lit("it is not UTF-8")))
    if part.format.framed:
        data = F.when(F.substring(data, 1, 1) == F.lit(b"\x00"), F.expr(f"substring({part.column}, 6)"))
    written = StructType([*part.fields.fields, StructField(_CORRUPT, StringType())])
    parsed = F.from_json(data.cast("string"), written, {"columnNameOfCorruptRecord": _CORRUPT})
    good = F.col(part.decoded).isNotNull() & F.col(part.decoded).getField(_CORRUPT).isNull()
    return rows.withColumn(part.decoded, parsed).withColumn(
        part.error, F.when(F.col(part.column).isNotNull() & ~F.coalesce(good, F.lit(False)), F.lit(_UNREADABLE))
    )


def _in_python(rows: DataFrame, part: Part) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - loads pyarrow

    schema = StructType(
        [*rows.schema.fields, StructField(part.decoded, part.fields), StructField(part.error, StringType())]
    )
    arrow_type: Any = to_arrow_type(part.fields, timezone="UTC")
    return rows.mapInArrow(ArrowDecoding(part.format, part.column, part.decoded, part.error, arrow_type), schema)


def _with_json_reasons(rows: DataFrame, part: Part) -> DataFrame:
    """Spark only says that it could not; here we look ourselves, at the few that it could not."""
    names = [field.name for field in rows.schema if not field.name.startswith("__")] + [
        name for name in rows.columns if name.endswith("_error")
    ]
    kept = rows.select(*names)
    return kept.mapInArrow(
        _JsonReasons(part.column, part.error, part.fields.jsonValue(), part.format.framed), kept.schema
    )


@dataclass(frozen=True)
class _JsonReasons:
    column: str
    error: str
    schema: dict[str, Any]
    framed: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        for batch in batches:
            values, errors = batch.column(self.column).to_pylist(), batch.column(self.error).to_pylist()
            reasons = [
                error if error is None else self._reason(value) for value, error in zip(values, errors, strict=True)
            ]
            at = batch.schema.names.index(self.error)
            yield batch.set_column(at, self.error, pa.array(reasons, type=pa.string()))

    def _reason(self, value: bytes | None) -> str:
        if self.framed and value is not None:
            if value[:1] != b"\x00" or len(value) < 5:
                return "it does not begin with the id of a schema: it was written without a registry"
            value = value[5:]
        return json_fault(value, self.schema)


def _refuse_twins(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"both key and value have a column {name!r}: give the key's another name")


def plain_fields(given: Format) -> StructType:
    """Of text and bytes, which are one column."""
    assert given.column is not None
    return StructType([StructField(given.column, StringType() if given.kind == "text" else BinaryType())])
