"""Batches into topics: all rows or none, as far as one driver's word reaches.

There is nothing that a next run could find: if the driver dies while it commits, some tasks' rows may be visible and
others' time out.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.transactions.deciding import TransactionDecider
from tidelog.pipelines.options import OptionError
from tidelog.pipelines.sink.columns import check_columns
from tidelog.pipelines.sink.decisions import attempt_id
from tidelog.pipelines.sink.messages import Written
from tidelog.pipelines.sink.options import SinkOptions
from tidelog.pipelines.sink.processes import this_process
from tidelog.pipelines.sink.writing import prepare, write_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from tidelog.client.transactions.handles import PreparedTransaction

_BATCHES = "batches"
_attempts = itertools.count()


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise OptionError('a topic cannot be overwritten: write with mode("append")')
    chosen = SinkOptions.of(options)
    check_columns(schema, chosen.topic)
    return BatchWriter(chosen, uuid.uuid4().hex)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, job: str) -> None:
        self._options = options
        self._job = job

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        if not self._options.exactly_once:
            return Written(_BATCHES, self._job, 0, write_at_once(self._options, iterator, this_process()), None)
        process = this_process()
        rows, prepared = prepare(
            self._options, iterator, lambda: attempt_id(_BATCHES, self._job, process.name, next(_attempts)), process
        )
        return Written(_BATCHES, self._job, 0, rows, prepared)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._end(messages, commit=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._end(messages, commit=False)

    def _end(self, messages: Sequence[WriterCommitMessage | None], *, commit: bool) -> None:
        written = [each.prepared for each in messages if isinstance(each, Written) and each.prepared is not None]
        if written:
            LoopThread.shared().run(_ended(self._options, written, commit=commit))


async def _ended(options: SinkOptions, prepared: Sequence[PreparedTransaction], *, commit: bool) -> None:
    async with TransactionDecider(options.producer) as decider:
        await decider.end(prepared, commit=commit)
