"""Writes a micro-batch to topics from within `foreachBatch`, as exactly once as a stream does.

Spark refuses update mode for sinks in Python, and offers `foreachBatch` instead, where a write is an ordinary one. Its
tasks still know which query and batch they belong to. That is all the sink needs to decide a batch once.

A batch is decided as a whole: within one `foreachBatch` there may be one such write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

FORMAT = "tidelog-micro-batch"


class MicroBatchSink(DataSource):
    """Takes the options of the sink of streams."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> MicroBatchWriter:
        from tidelog.pipelines.sink.stream import stream_writer  # noqa: PLC0415 - in the process that needs it

        return MicroBatchWriter(stream_writer(self.options, schema, overwrite=overwrite))


class MicroBatchWriter(DataSourceArrowWriter):
    def __init__(self, stream: DataSourceStreamArrowWriter) -> None:
        self._stream = stream

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        return self._stream.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = _batch_of(messages)
        if batch is not None:
            self._stream.commit(list(messages), batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = _batch_of(messages)
        if batch is not None:
            self._stream.abort(list(messages), batch)


def _batch_of(messages: Sequence[WriterCommitMessage | None]) -> int | None:
    """None: no task has written anything."""
    from tidelog.pipelines.sink.messages import Written  # noqa: PLC0415 - same

    return next((each.batch for each in messages if isinstance(each, Written)), None)


def register(spark: SparkSession) -> None:
    spark.dataSource.register(MicroBatchSink)
