"""Streams into topics. Spark makes one writer for each batch's tasks, and another one, elsewhere, to commit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.pipelines.sink.checkpoint import place_of, source_offsets
from tidelog.pipelines.sink.columns import check_columns
from tidelog.pipelines.sink.decider import Decider
from tidelog.pipelines.sink.decisions import Proposal
from tidelog.pipelines.sink.messages import TaskIdentity, Written
from tidelog.pipelines.sink.options import SinkOptions
from tidelog.pipelines.sink.processes import this_process
from tidelog.pipelines.sink.writing import write_at_once, write_prepared
from tidelog.pipelines.worker_rest import shorten_rests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from tidelog.client.config import ProducerConfig
    from tidelog.client.transactions.handles import PreparedTransaction

_DECIDERS_KEPT: Final = 8
_DISAGREED: Final = "?"

_deciders: dict[tuple[ProducerConfig, str, str | None], Decider] = {}
"""Of the process in which Spark commits, which it keeps from batch to batch."""


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamArrowWriter:
    """`overwrite` is how Spark says that each batch brings all of the result, which is added as any other."""
    del overwrite
    chosen = SinkOptions.of(options)
    check_columns(schema, chosen.topic)
    return StreamWriter(chosen)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        task = TaskIdentity.of_this_task()
        try:
            if self._options.exactly_once:
                return write_prepared(self._options, task, iterator, this_process())
            rows = write_at_once(self._options, iterator, this_process())
            return Written(task.query, task.run, task.batch, rows, None)
        finally:
            shorten_rests()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        if self._options.exactly_once:
            proposal, prepared = proposed(self._options, messages, batchId)
            LoopThread.shared().run(_decider(self._options, proposal.query).commit(proposal, prepared))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        if self._options.exactly_once and any(isinstance(each, Written) for each in messages):
            proposal, prepared = proposed(self._options, messages, batchId)
            LoopThread.shared().run(_decider(self._options, proposal.query).abort(proposal, prepared))


def proposed(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int
) -> tuple[Proposal, list[PreparedTransaction]]:
    """What tasks say, put together."""
    written = [each for each in messages if isinstance(each, Written)]
    if not written:
        raise RuntimeError(f"Spark gave no task's message for batch {batch}")
    seen = {each.seen_run for each in written}
    proposal = Proposal(
        query=written[0].query,
        run=written[0].run,
        batch=batch,
        seen_run=seen.pop() if len(seen) == 1 else _DISAGREED,
        offsets=None if options.checkpoint is None else source_offsets(options.checkpoint, batch),
    )
    return proposal, [each.prepared for each in written if each.prepared is not None]


def _decider(options: SinkOptions, query: str) -> Decider:
    checkpoint = None if options.checkpoint is None else place_of(options.checkpoint)
    key = (options.producer, query, checkpoint)
    if key not in _deciders:
        while len(_deciders) >= _DECIDERS_KEPT:
            LoopThread.shared().run(_deciders.pop(next(iter(_deciders))).close())
        _deciders[key] = Decider(options.producer, query, checkpoint=checkpoint)
    return _deciders[key]
