"""Starts what a sink runs: a streaming query, or one write where nothing streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidelog.pipelines.definition.durations import spark_interval
from tidelog.pipelines.definition.sinks import ConsoleWrite, FilesWrite, JdbcWrite, TopicWrite
from tidelog.pipelines.runner import micro_batches
from tidelog.pipelines.runner.encoding import encode
from tidelog.pipelines.runner.reading import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidelog.pipelines.definition.sinks import Sink


class ShowRows(Protocol):
    def __call__(self, query: str, batch: int | None, columns: list[str], rows: list[Row], more: bool) -> None:
        """Shows rows of a console sink."""


class Run(NamedTuple):
    """How a query is run."""

    name: str
    checkpoint: str
    trigger: str | None
    once: bool
    """Ends when all that there was has been read."""
    kafka: Mapping[str, str]
    """Settings of producers, with the prefix."""
    beside: Path
    show: ShowRows


def start(rows: DataFrame, sink: Sink, run: Run) -> StreamingQuery | None:
    """None: nothing streams, and all is written."""
    if not rows.isStreaming:
        _write_batch(rows, sink, run, None)
        return None
    writes = sink.writes
    if isinstance(writes, TopicWrite) and sink.mode != "update":
        encoded = encode(rows, writes, run.beside).writeStream.format(FORMAT).options(**_topic_options(writes, run))
        return _started(encoded, sink, run)
    if isinstance(writes, FilesWrite):
        writer = rows.writeStream.format(writes.format).options(**writes.options).option("path", writes.path)
        return _started(writer.partitionBy(*writes.partition_by) if writes.partition_by else writer, sink, run)
    return _started(rows.writeStream.foreachBatch(_each_batch(sink, run)), sink, run)


def _started(writer: DataStreamWriter, sink: Sink, run: Run) -> StreamingQuery:
    writer = writer.queryName(run.name).outputMode(sink.mode).option("checkpointLocation", run.checkpoint)
    if run.once:
        return writer.trigger(availableNow=True).start()
    if run.trigger is not None:
        writer = writer.trigger(processingTime=spark_interval(run.trigger, "the trigger"))
    return writer.start()


def _each_batch(sink: Sink, run: Run) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        _write_batch(rows, sink, run, batch)

    return write


def _write_batch(rows: DataFrame, sink: Sink, run: Run, batch: int | None) -> None:
    writes: Any = sink.writes
    if isinstance(writes, ConsoleWrite):
        _show(rows, writes, run, batch)
        return
    mode = "overwrite" if sink.mode == "complete" else "append"
    if isinstance(writes, JdbcWrite):
        options = {"truncate": "true", **writes.options}
        rows.write.format("jdbc").mode(mode).options(url=writes.url, dbtable=writes.table, **options).save()
    elif isinstance(writes, FilesWrite):
        rows.write.format(writes.format).mode(mode).partitionBy(*writes.partition_by).options(**writes.options).save(
            writes.path
        )
    else:
        assert isinstance(writes, TopicWrite)
        options = _topic_options(writes, run)
        format_ = FORMAT
        if batch is not None:
            micro_batches.register(rows.sparkSession)
            format_, options["checkpointLocation"] = micro_batches.FORMAT, run.checkpoint
        encode(rows, writes, run.beside).write.format(format_).mode("append").options(**options).save()


def _show(rows: DataFrame, writes: ConsoleWrite, run: Run, batch: int | None) -> None:
    """All rows are computed, though few are shown: what a query remembers is written only by tasks that are run."""
    rows = rows.persist()
    try:
        count = rows.count()
        found = rows.limit(writes.rows).collect()
    finally:
        rows.unpersist()
    if found:
        run.show(run.name, batch, rows.columns, found, count > writes.rows)


def _topic_options(writes: TopicWrite, run: Run) -> dict[str, str]:
    named = {} if writes.topic is None else {"topic": writes.topic}
    return {**named, "delivery": writes.delivery, **run.kafka, **writes.options}
