"""The columns of a format: declared, or found out from a sample once and kept, so that a restart sees the same ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from tidelog.client.serializers.framing import unframe
from tidelog.client.serializers.registry import SchemaRegistry
from tidelog.pipelines.decoding.decoding import Part, plain_fields
from tidelog.pipelines.decoding.protobuf_messages import with_message
from tidelog.pipelines.decoding.readers import columns_of
from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipelines.definition.formats import Format
    from tidelog.pipelines.runner.directory import PipelineDirectory

SAMPLED_RECORDS: Final = 1000


class Schemas:
    """What is known, by the name of the source and the part of its records."""

    def __init__(self, spark: SparkSession, directory: PipelineDirectory, beside: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._beside = beside
        self._pinned = directory.schemas()

    def part(self, source: str, column: str, given: Format, sample: Callable[[], DataFrame]) -> Part:
        """`sample` reads the records of the source from the beginning; it is called only if they are needed."""
        try:
            return self._part(source, column, given, sample)
        except PipelineError as error:
            raise PipelineError(f"source {source}: {column}: {error}") from error.__cause__

    def files(self, source: str, schema: str | None, infer: Callable[[], StructType]) -> StructType:
        if schema is not None:
            return self.declared(schema)
        pinned = self._pin(f"{source}.files", lambda: infer().jsonValue())
        return StructType.fromJson(pinned)

    def declared(self, text: str) -> StructType:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        found = StructType.fromDDL(text)
        if not isinstance(found, StructType):
            raise PipelineError(f"{text!r} is one type, not columns such as 'id long, at timestamp'")
        return found

    def _part(self, source: str, column: str, given: Format, sample: Callable[[], DataFrame]) -> Part:
        if given.kind in {"text", "binary"}:
            return Part(column, given, plain_fields(given))
        key = f"{source}.{column}"
        if given.kind == "json":
            if given.schema is not None:
                return Part(column, given, self.declared(given.schema))
            pinned = self._pin(key, lambda: self._infer_json(column, given, sample()).jsonValue())
            return Part(column, given, StructType.fromJson(pinned))
        if given.kind == "avro":
            given = replace(given, schema=self._avro_schema(key, column, given, sample))
        else:
            given = with_message(given, self._beside)
        return Part(column, given, columns_of(given))

    def _avro_schema(self, key: str, column: str, given: Format, sample: Callable[[], DataFrame]) -> str:
        if given.schema is None:
            return str(self._pin(key, lambda: self._registered(column, given, sample())))
        if given.schema.lstrip()[:1] in {"{", "["}:
            return given.schema
        try:
            return (self._beside / given.schema).read_text(encoding="utf-8")
        except OSError as error:
            raise PipelineError(f"the Avro schema {given.schema} cannot be read: {error.strerror}") from None

    def _registered(self, column: str, given: Format, rows: DataFrame) -> str:
        """The schema that the first record was written with."""
        assert given.registry is not None
        found = rows.where(f"{column} is not null").select(column).limit(1).collect()
        if not found:
            raise PipelineError("there is no record yet to tell the schema: declare it, or write one first")
        try:
            return SchemaRegistry(given.registry).schema(unframe(bytes(found[0][0])).schema_id).text
        except ValueError as error:
            raise PipelineError(f"the first record names no schema: {error}") from None

    def _infer_json(self, column: str, given: Format, rows: DataFrame) -> StructType:
        data = f"substring({column}, 6)" if given.framed else column
        texts = rows.where(f"{column} is not null").limit(SAMPLED_RECORDS).selectExpr(f"cast({data} as string)")
        found = self._spark.read.option("mode", "DROPMALFORMED").json(texts.rdd.map(lambda row: row[0])).schema
        if not found.fields:
            raise PipelineError("there are no JSON records yet to tell the schema: declare it, or write some first")
        return found

    def _pin(self, key: str, find: Callable[[], Any]) -> Any:
        if key not in self._pinned:
            self._pinned[key] = find()
            self._directory.save_schemas(self._pinned)
        return self._pinned[key]
