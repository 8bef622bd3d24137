"""Batches into topics: all rows or none, as far as one driver's word reaches.

There is nothing that a next run could find: if the driver dies while it commits, some tasks' rows may be visible and
those of others time out.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter

from tidelog.client.admin import Admin
from tidelog.client.backoff import Deadline
from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.config import ClientConfig
from tidelog.client.errors import ClientError
from tidelog.client.transactions.deciding import TransactionDecider
from tidelog.errors import BrokerError
from tidelog.pipelines.options import OptionError
from tidelog.pipelines.sink.client_settings import as_client
from tidelog.pipelines.sink.columns import check_columns
from tidelog.pipelines.sink.decisions import attempt_id, transactions_of_run
from tidelog.pipelines.sink.leftovers import open_transactions
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

log = logging.getLogger(__name__)

_BATCHES: Final = "batches"
"""In the place of a query's id."""
_TASKS_STOP_WITHIN_MS: Final = 3000
"""Spark kills a process that has not ended its task two seconds after it was told to: spark.python.task.killTimeout."""
_PAUSE_S: Final = 0.2

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

        def name() -> str:
            return attempt_id(_BATCHES, self._job, process.name, next(_attempts))

        rows, prepared = prepare(self._options, iterator, name, process, name_comes_again=False)
        return Written(_BATCHES, self._job, 0, rows, prepared)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            LoopThread.shared().run(_committed(self._options, self._job, _prepared(messages)))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            LoopThread.shared().run(_aborted(self._options, self._job, _prepared(messages)))


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedTransaction]:
    return [each.prepared for each in messages if isinstance(each, Written) and each.prepared is not None]


async def _committed(options: SinkOptions, job: str, prepared: Sequence[PreparedTransaction]) -> None:
    async with TransactionDecider(options.producer) as decider:
        await decider.end(prepared, commit=True)
        async with Admin(as_client(options.producer, ClientConfig)) as admin:
            await _sweep(admin, decider, job)


async def _aborted(options: SinkOptions, job: str, prepared: Sequence[PreparedTransaction]) -> None:
    """Spark has told the other tasks to stop. Until they have, they may go on, and nobody will hear of what they do."""
    async with TransactionDecider(options.producer) as decider:
        await decider.fence(each.transactional_id for each in prepared)
        async with Admin(as_client(options.producer, ClientConfig)) as admin:
            deadline = Deadline(_TASKS_STOP_WITHIN_MS)
            while not deadline.passed:
                await _sweep(admin, decider, job)
                await asyncio.sleep(_PAUSE_S)


async def _sweep(admin: Admin, decider: TransactionDecider, job: str) -> None:
    try:
        await decider.fence(await open_transactions(admin, transactions_of_run(_BATCHES, job)))
    except (ClientError, BrokerError) as error:
        log.warning("what attempts have left open could not be aborted, and will time out: %s", error)
