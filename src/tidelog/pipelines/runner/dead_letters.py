"""Records that could not be read, in a topic of their own: as they came, with headers that say from where and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.definition.sources import Source
    from tidelog.pipelines.runner.reading import SourceReader

PREFIX: Final = "tidelog."
TOPIC: Final = "tidelog.topic"
PARTITION: Final = "tidelog.partition"
OFFSET: Final = "tidelog.offset"
TIMESTAMP: Final = "tidelog.timestamp"
ERROR: Final = "tidelog.error"
PIPELINE: Final = "tidelog.pipeline"
SOURCE: Final = "tidelog.source"

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


def dead_letters(pipeline: str, name: str, source: Source, reader: SourceReader, group: str) -> DataFrame:
    """Those of one source, as rows for the sink."""
    rows = reader.malformed(name, source, group)
    own = F.array(
        _header(TOPIC, F.col("topic")),
        _header(PARTITION, F.col("partition")),
        _header(OFFSET, F.col("offset")),
        _header(TIMESTAMP, F.unix_millis("timestamp")),
        _header(ERROR, F.col("error")),
        _header(PIPELINE, F.lit(pipeline)),
        _header(SOURCE, F.lit(name)),
    )
    # A record that was replayed and is malformed again keeps only the headers of this time.
    given = F.filter(
        F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE)), lambda each: ~each["key"].startswith(PREFIX)
    )
    return rows.select("key", "value", F.concat(given, own.cast(_HEADERS_TYPE)).alias("headers"))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
