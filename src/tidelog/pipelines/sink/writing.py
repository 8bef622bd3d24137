"""What tasks do: put their rows into a transaction of their own, prepare it, and say so. Nothing is visible by that.

A process of Spark's runs one task after the other, and keeps its producers for the next ones.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.producer import Producer
from tidelog.pipelines.sink.decision_log import DecisionLog
from tidelog.pipelines.sink.decisions import NO_RUN, attempt_id
from tidelog.pipelines.sink.messages import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from pyarrow import RecordBatch  # type: ignore[import-untyped]

    from tidelog.client.arrow_sending import BatchDelivery
    from tidelog.client.config import ProducerConfig
    from tidelog.client.transactions.handles import PreparedTransaction
    from tidelog.pipelines.sink.decisions import Decision
    from tidelog.pipelines.sink.messages import TaskIdentity
    from tidelog.pipelines.sink.options import SinkOptions


@dataclass(slots=True)
class Places:
    """Which transactional id of this process comes next, in one run of one query.

    Several tasks of one batch need one each, as all of them are open until the batch is decided. When a later batch is
    met, all batches before it are completed, and the ids are free again.
    """

    batch: int = -1
    taken: int = 0

    def take(self, batch: int) -> int:
        if batch > self.batch:
            self.batch, self.taken = batch, 0
        self.taken += 1
        return self.taken - 1


@dataclass(slots=True)
class RunView:
    """What this process knows of one run of one query."""

    seen_run: str
    decided_batch: int
    places: Places = field(default_factory=Places)


@dataclass(slots=True)
class WritingProcess:
    """What a process keeps from task to task."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    runs: dict[tuple[str, str], RunView] = field(default_factory=dict)


_RUNS_KEPT: Final = 1000
"""Small as they are; but a run that is forgotten while its tasks come would give out the same ids again."""

_processes: dict[int, WritingProcess] = {}


def this_process() -> WritingProcess:
    """By its number: a forked child is another process, with a name of its own."""
    number = os.getpid()
    if number not in _processes:
        _processes.clear()
        _processes[number] = WritingProcess()
    return _processes[number]


def write_prepared(
    options: SinkOptions, task: TaskIdentity, batches: Iterator[RecordBatch], process: WritingProcess
) -> Written:
    """Of a stream. A batch that is decided already is not written again."""
    view = _view(options, task, process)
    if task.batch <= view.decided_batch:
        for _ in batches:
            pass
        return Written(task.query, task.run, task.batch, 0, None, view.seen_run)
    rows, prepared = prepare(
        options, batches, lambda: attempt_id(task.query, task.run, process.name, view.places.take(task.batch))
    )
    return Written(task.query, task.run, task.batch, rows, prepared, view.seen_run)


def _view(options: SinkOptions, task: TaskIdentity, process: WritingProcess) -> RunView:
    view = process.runs.get((task.query, task.run))
    if view is None:
        last = LoopThread.shared().run(_last_decision(options.producer, task.query))
        view = RunView(NO_RUN, -1) if last is None else RunView(last.run, last.batch)
        while len(process.runs) >= _RUNS_KEPT:
            process.runs.pop(next(iter(process.runs)))
        process.runs[task.query, task.run] = view
    return view


async def _last_decision(config: ProducerConfig, query: str) -> Decision | None:
    async with DecisionLog(config) as log:
        return await log.last(query)


def prepare(
    options: SinkOptions, batches: Iterator[RecordBatch], name: Callable[[], str]
) -> tuple[int, PreparedTransaction | None]:
    """Stores all rows in one transaction, and gives how many there were. `name` is asked when there are any."""
    loop = LoopThread.shared()
    producer: Producer | None = None
    sending: Future[object] | None = None
    rows = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if producer is None:
                producer = loop.run(_begun(replace(options.producer, transactional_id=name())))
            if sending is not None:
                sending.result()
            # The next rows are read while these are packed and sent.
            sending = loop.start(producer.send_batch(options.topic, batch))
            rows += batch.num_rows
        if producer is None or sending is None:
            return 0, None
        sending.result()
        return rows, loop.run(_prepared(producer))
    except BaseException:
        if producer is not None:
            loop.run(producer.close())
        raise


async def _begun(config: ProducerConfig) -> Producer:
    producer: Producer = Producer(config)
    await producer.start()
    await producer.begin()
    return producer


async def _prepared(producer: Producer) -> PreparedTransaction:
    prepared = await producer.prepare()
    await producer.close()
    return prepared


def write_at_once(options: SinkOptions, batches: Iterator[RecordBatch]) -> int:
    """Without a transaction: what is stored is visible, and stays so if the task is run again."""
    loop = LoopThread.shared()
    producer: Producer | None = None
    sending: Future[asyncio.Future[BatchDelivery]] | None = None
    deliveries: list[asyncio.Future[BatchDelivery]] = []
    rows = 0
    try:
        for batch in batches:
            if producer is None:
                producer = loop.run(_started(options.producer))
            if sending is not None:
                deliveries.append(sending.result())
            sending = loop.start(producer.send_batch(options.topic, batch))
            rows += batch.num_rows
        if sending is not None:
            deliveries.append(sending.result())
            loop.run(_delivered(deliveries))
        return rows
    finally:
        if producer is not None:
            loop.run(producer.close())


async def _started(config: ProducerConfig) -> Producer:
    producer: Producer = Producer(config)
    await producer.start()
    return producer


async def _delivered(deliveries: Sequence[asyncio.Future[BatchDelivery]]) -> None:
    await asyncio.gather(*deliveries)
