"""What tasks do: put their rows into a transaction of their own, prepare it, and say so. Nothing is visible by that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.pipelines.sink.decision_log import DecisionLog
from tidelog.pipelines.sink.decisions import NO_RUN, attempt_id
from tidelog.pipelines.sink.messages import Written
from tidelog.pipelines.sink.processes import RunView, end_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from pyarrow import RecordBatch  # type: ignore[import-untyped]

    from tidelog.client.arrow_sending import BatchDelivery
    from tidelog.client.config import ProducerConfig
    from tidelog.client.producer import Producer
    from tidelog.client.transactions.handles import PreparedTransaction
    from tidelog.pipelines.sink.decisions import Decision
    from tidelog.pipelines.sink.messages import TaskIdentity
    from tidelog.pipelines.sink.options import SinkOptions
    from tidelog.pipelines.sink.processes import WritingProcess


def write_prepared(
    options: SinkOptions, task: TaskIdentity, batches: Iterator[RecordBatch], process: WritingProcess
) -> Written:
    """Of a stream. A batch that is decided already is not written again."""
    view = process.view(task.query, task.run)
    if view is None:
        last = LoopThread.shared().run(_last_decision(options.producer, task.query))
        view = RunView(NO_RUN, -1) if last is None else RunView(last.run, last.batch)
        process.remember(task.query, task.run, view)
    if task.batch <= view.decided_batch:
        for _ in batches:
            pass
        return Written(task.query, task.run, task.batch, 0, None, view.seen_run)

    def name() -> str:
        return attempt_id(task.query, task.run, process.name, view.places.take(task.batch))

    rows, prepared = prepare(options, batches, name, process, name_comes_again=True)
    return Written(task.query, task.run, task.batch, rows, prepared, view.seen_run)


async def _last_decision(config: ProducerConfig, query: str) -> Decision | None:
    async with DecisionLog(config) as log:
        return await log.last(query)


def prepare(
    options: SinkOptions,
    batches: Iterator[RecordBatch],
    name: Callable[[], str],
    process: WritingProcess,
    *,
    name_comes_again: bool,
) -> tuple[int, PreparedTransaction | None]:
    """Stores all rows in one transaction, and gives how many there were. `name` is asked when there are any."""

    def config() -> ProducerConfig:
        return replace(options.producer, transactional_id=name())

    rows, producer, _ = _send_all(options, batches, config, process)
    if producer is None:
        return 0, None
    try:
        prepared = LoopThread.shared().run(producer.prepare())
    except BaseException:
        end_with(producer)
        raise
    LoopThread.shared().run(process.put_back(producer) if name_comes_again else producer.close())
    return rows, prepared


def write_at_once(options: SinkOptions, batches: Iterator[RecordBatch], process: WritingProcess) -> int:
    """Without a transaction: what is stored is visible, and stays so if the task is run again."""
    rows, producer, deliveries = _send_all(options, batches, lambda: options.producer, process)
    if producer is None:
        return 0
    try:
        LoopThread.shared().run(_delivered(deliveries))
    except BaseException:
        end_with(producer)
        raise
    LoopThread.shared().run(process.put_back(producer))
    return rows


def _send_all(
    options: SinkOptions,
    batches: Iterator[RecordBatch],
    config: Callable[[], ProducerConfig],
    process: WritingProcess,
) -> tuple[int, Producer | None, list[asyncio.Future[BatchDelivery]]]:
    """Rows sent, the producer that has them, and what they will come to. No producer: there were no rows."""
    loop = LoopThread.shared()
    producer: Producer | None = None
    sending: Future[asyncio.Future[BatchDelivery]] | None = None
    deliveries: list[asyncio.Future[BatchDelivery]] = []
    rows = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if producer is None:
                producer = loop.run(process.producer(config()))
            if sending is not None:
                deliveries.append(sending.result())
            # The next rows are read while these are packed and sent.
            sending = loop.start(producer.send_batch(options.topic, batch))
            rows += batch.num_rows
        if sending is not None:
            deliveries.append(sending.result())
    except BaseException:
        if producer is not None:
            end_with(producer)
        raise
    return rows, producer, deliveries


async def _delivered(deliveries: list[asyncio.Future[BatchDelivery]]) -> None:
    await asyncio.gather(*deliveries)
