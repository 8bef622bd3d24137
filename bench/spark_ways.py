"""The queries that are measured: from a topic to nowhere, to counts, to another topic; by our formats or Spark's."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OURS: Final = "tidelog"
THEIRS: Final = "kafka"


class Way(NamedTuple):
    """How rows are read, what becomes of them, and how they are written."""

    name: str
    kind: str
    """The format that reads; it writes too, where there is a topic to write to."""
    shape: str
    """`nowhere`, `counts` or `topic`."""
    delivery: str | None = None
    columns: str | None = None


NOWHERE: Final = (Way("ours", OURS, "nowhere"), Way("theirs", THEIRS, "nowhere"))
COUNTS: Final = (
    Way("ours", OURS, "counts"),
    Way("ours, only what is needed", OURS, "counts", columns="key"),
    Way("theirs", THEIRS, "counts"),
)
EXACTLY_ONCE: Final = Way("ours, exactly once", OURS, "topic", "exactly-once")
AT_LEAST_ONCE: Final = Way("ours, at least once", OURS, "topic", "at-least-once")
TO_TOPIC: Final = (EXACTLY_ONCE, AT_LEAST_ONCE, Way("theirs", THEIRS, "topic"))


class Stage(NamedTuple):
    """Where queries run."""

    spark: SparkSession
    bootstrap: str
    place: Path
    """Below which checkpoints are kept, as long as they are needed."""


def source(stage: Stage, way: Way, topic: str, **options: object) -> DataFrame:
    reader = stage.spark.readStream.format(way.kind).option("kafka.bootstrap.servers", stage.bootstrap)
    if way.columns is not None:
        reader = reader.option("columns", way.columns)
    return reader.options(subscribe=topic, **{name: str(value) for name, value in options.items()}).load()


def table(stage: Stage, kind: str, topic: str) -> DataFrame:
    return (
        stage.spark.read.format(kind).options(**{"kafka.bootstrap.servers": stage.bootstrap, "subscribe": topic}).load()
    )


@contextmanager
def started(
    stage: Stage, way: Way, frame: DataFrame, target: str | None, *, ends_by_itself: bool
) -> Iterator[StreamingQuery]:
    """A query, which is stopped with the block if it does not end before."""
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=stage.place, ignore_cleanup_errors=True) as checkpoint:
        writer = _writer(stage, way, frame, target).option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True) if ends_by_itself else writer.trigger(processingTime="0 seconds")
        query = writer.start()
        try:
            yield query
        finally:
            query.stop()


def _writer(stage: Stage, way: Way, frame: DataFrame, target: str | None) -> DataStreamWriter:
    if way.shape == "nowhere":
        return frame.writeStream.format("noop")
    if way.shape == "counts":
        return frame.groupBy("key").count().writeStream.format("noop").outputMode("update")
    assert target is not None
    writer = frame.select("key", "value").writeStream.format(way.kind)
    writer = writer.options(**{"kafka.bootstrap.servers": stage.bootstrap, "topic": target})
    return writer if way.delivery is None else writer.option("delivery", way.delivery)
