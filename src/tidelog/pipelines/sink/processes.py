"""What a process of Spark keeps from task to task: a name, producers that are connected, and what it knows of runs."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.errors import ClientError
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError

if TYPE_CHECKING:
    from tidelog.client.config import ProducerConfig

_RUNS_KEPT: Final = 1000
"""Small as they are; but a run that is forgotten while its tasks come would give out the same ids again."""
_PRODUCERS_KEPT: Final = 32


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
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    _runs: dict[tuple[str, str], RunView] = field(default_factory=dict)
    _idle: dict[ProducerConfig, Producer] = field(default_factory=dict)

    def view(self, query: str, run: str) -> RunView | None:
        found = self._runs.pop((query, run), None)
        if found is not None:
            self._runs[query, run] = found
        return found

    def remember(self, query: str, run: str, view: RunView) -> None:
        while len(self._runs) >= _RUNS_KEPT:
            self._runs.pop(next(iter(self._runs)))
        self._runs[query, run] = view

    async def producer(self, config: ProducerConfig) -> Producer:
        """One that is connected. With a transactional id, in a transaction that has just begun.

        It is `put_back`, or closed.
        """
        producer = self._idle.pop(config, None)
        if producer is not None:
            try:
                if config.transactional_id is not None:
                    await producer.renew()
                    await producer.begin()
            except (ClientError, BrokerError):
                await producer.close(flush=False)
            else:
                return producer
        producer = Producer(config)
        await producer.start()
        if config.transactional_id is not None:
            await producer.begin()
        return producer

    async def put_back(self, producer: Producer) -> None:
        self._idle[producer.config] = producer
        while len(self._idle) > _PRODUCERS_KEPT:
            await self._idle.pop(next(iter(self._idle))).close()

    async def close(self) -> None:
        while self._idle:
            await self._idle.popitem()[1].close()


_processes: dict[int, WritingProcess] = {}


def this_process() -> WritingProcess:
    """By its number: a forked child has a name of its own, and cannot use the connections of its parent."""
    number = os.getpid()
    if number not in _processes:
        _processes.clear()
        _processes[number] = WritingProcess()
    return _processes[number]


def end_with(producer: Producer) -> None:
    """Something went wrong. What is open is aborted, if the brokers can be reached, and what is raised is what was."""
    with suppress(ClientError, BrokerError):
        LoopThread.shared().run(producer.close())
