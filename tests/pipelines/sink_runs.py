"""Streaming queries without Spark: drivers and tasks that do what Spark has them do, one step at a time.

A driver keeps a checkpoint as Spark does: `metadata` names the query, `offsets/N` is written before batch N, and
`commits/N` after it. What is in offsets and not in commits is repeated when a driver starts. The source are the numbers
from 0 on.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa  # type: ignore[import-untyped]
from committed_reader import committed_values

from tidelog.client.admin import Admin
from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.pipelines.sink.checkpoint import place_of
from tidelog.pipelines.sink.decider import Decider
from tidelog.pipelines.sink.decision_log import DecisionLog
from tidelog.pipelines.sink.desk import no_step
from tidelog.pipelines.sink.messages import TaskIdentity, Written
from tidelog.pipelines.sink.options import SinkOptions
from tidelog.pipelines.sink.processes import WritingProcess
from tidelog.pipelines.sink.stream import proposed
from tidelog.pipelines.sink.writing import write_prepared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tidelog.client.administration.transactions import ListedTransaction
    from tidelog.pipelines.sink.decisions import Decision
    from tidelog.pipelines.sink.desk import Step

ROWS = 40
"""Of one batch."""
TASKS = 4
PARTITIONS = 3


class Checkpoint:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        if not (directory / "metadata").exists():
            (directory / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    @property
    def query(self) -> str:
        return str(json.loads((self.directory / "metadata").read_text())["id"])

    def plan(self) -> int:
        """The batch that comes next: the one that was not finished, or a new one."""
        last = max((int(each.name) for each in (self.directory / "offsets").iterdir()), default=-1)
        if last >= 0 and not (self.directory / "commits" / str(last)).exists():
            return last
        self.write_offsets(last + 1, self.end(last) + ROWS)
        return last + 1

    def write_offsets(self, batch: int, end: int) -> None:
        (self.directory / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{batch}}}\n{{"0":{end}}}')

    def end(self, batch: int) -> int:
        if batch < 0:
            return 0
        return int(json.loads((self.directory / "offsets" / str(batch)).read_text().splitlines()[2])["0"])

    def rows(self, batch: int) -> range:
        return range(self.end(batch - 1), self.end(batch))

    def finish(self, batch: int) -> None:
        (self.directory / "commits" / str(batch)).write_text("v1\n{}")


class Driver:
    """One run of the query of a checkpoint."""

    started: ClassVar[list[Driver]] = []
    """To be ended with the test."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        checkpoint: Checkpoint,
        *,
        step: Step = no_step,
        settings: Mapping[str, str] = {},
        processes: Sequence[WritingProcess] = (),
    ) -> None:
        self.checkpoint = checkpoint
        self.run = str(uuid.uuid4())
        self.options = SinkOptions.of(
            {
                "kafka.bootstrap.servers": bootstrap,
                "topic": topic,
                "checkpointlocation": str(checkpoint.directory),
                **settings,
            }
        )
        self.processes = list(processes) or [WritingProcess(), WritingProcess()]
        place = place_of(str(checkpoint.directory))
        self.decider = Decider(self.options.producer, checkpoint.query, checkpoint=place, step=step)
        self.started.append(self)

    def task(self, batch: int, number: int, process: WritingProcess | None = None) -> Written:
        """One attempt at one of the batch's tasks."""
        identity = TaskIdentity(self.checkpoint.query, self.run, batch)
        rows = self.checkpoint.rows(batch)[number::TASKS]
        return write_prepared(
            self.options, identity, arrow(rows), process or self.processes[number % len(self.processes)]
        )

    def write(self, batch: int) -> list[Written]:
        return [self.task(batch, number) for number in range(TASKS)]

    def commit(self, batch: int, messages: Sequence[Written]) -> None:
        LoopThread.shared().run(self.decider.commit(*proposed(self.options, messages, batch)))

    def abort(self, batch: int, messages: Sequence[Written]) -> None:
        LoopThread.shared().run(self.decider.abort(*proposed(self.options, messages, batch)))

    def batch(self) -> int:
        """The next batch, from its plan to its end."""
        batch = self.checkpoint.plan()
        self.commit(batch, self.write(batch))
        self.checkpoint.finish(batch)
        return batch

    def die(self) -> None:
        """Its connections break. Nobody says goodbye to a coordinator."""
        LoopThread.shared().run(self.decider.close())

    @classmethod
    def end_all(cls) -> None:
        while cls.started:
            driver = cls.started.pop()
            driver.die()
            for process in driver.processes:
                LoopThread.shared().run(process.close())


def arrow(rows: range) -> Iterator[pa.RecordBatch]:
    """In two batches, with keys, so that every task writes to several partitions."""
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        values = pa.array([b"%d" % number for number in part], pa.binary())
        yield pa.record_batch({"key": values, "value": values})


def create_topic(bootstrap: str, topic: str, replicas: int = 1) -> None:
    async def create() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=replicas)

    asyncio.run(create())


def open_transactions(bootstrap: str, query: str) -> list[ListedTransaction]:
    async def listed() -> list[ListedTransaction]:
        async with Admin(bootstrap) as admin:
            found = await admin.list_transactions(states=["Ongoing"])
            return [each for each in found if f".{query}." in each.transactional_id]

    return asyncio.run(listed())


def last_decision(driver: Driver) -> Decision | None:
    async def last() -> Decision | None:
        async with DecisionLog(driver.options.producer) as log:
            return await log.last(driver.checkpoint.query)

    return asyncio.run(last())


def visible(bootstrap: str, topic: str) -> list[int]:
    """What readers of committed records see, sorted. Fails if a transaction that stays open holds them back."""
    return sorted(int(value) for value in committed_values(bootstrap, topic, PARTITIONS))
