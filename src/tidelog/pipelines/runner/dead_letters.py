"""Records that could not be read, in a topic of their own: as they came, with headers that say from where and why."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.definition.pipeline import Pipeline
    from tidelog.pipelines.runner.reading import SourceReader

PREFIX: Final = "tidelog."
TOPIC: Final = "tidelog.topic"
PARTITION: Final = "tidelog.partition"
OFFSET: Final = "tidelog.offset"
ERROR: Final = "tidelog.error"
PIPELINE: Final = "tidelog.pipeline"
SOURCE: Final = "tidelog.source"

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


def dead_letters(pipeline: Pipeline, reader: SourceReader, group: str) -> DataFrame | None:
    """None: no source has records that could be malformed."""
    frames = [reader.malformed(name, source, group) for name, source in pipeline.decoded()]
    if not frames:
        return None
    rows = reduce(lambda one, other: one.unionByName(other), frames)
    own = F.array(
        _header(TOPIC, F.col("topic")),
        _header(PARTITION, F.col("partition")),
        _header(OFFSET, F.col("offset")),
        _header(ERROR, F.col("error")),
        _header(PIPELINE, F.lit(pipeline.name)),
        _header(SOURCE, F.col("source")),
    )
    # A record that was replayed and is malformed again keeps only the headers of this time.
    given = F.filter(
        F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE)), lambda each: ~each["key"].startswith(PREFIX)
    )
    return rows.select("key", "value", F.concat(given, own.cast(_HEADERS_TYPE)).alias("headers"))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
