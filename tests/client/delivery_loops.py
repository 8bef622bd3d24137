"""Work that goes on while brokers die, hang or are cut off, and what must be true of its records afterwards."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.client import (
    ClientError,
    Consumer,
    OffsetSpec,
    Producer,
    ProducerStopped,
    RecordMetadata,
    TimedOut,
    TopicPartition,
    TransactionFailed,
)

if TYPE_CHECKING:
    from collections.abc import Collection

AT_ONCE = 70

PATIENT: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "request_timeout_ms": 10_000,
    "default_api_timeout_ms": 600_000,
}


class Load:
    """An idempotent producer that never stops sending, and what it was told. No partition waits for another."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, settings: dict[str, Any] = PATIENT) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._settings = settings
        self.stored: list[dict[int, int]] = [{} for _ in range(partitions)]
        self._progress = asyncio.Event()
        self._enough = False

    async def run(self) -> None:
        async with (
            Producer(
                self._bootstrap,
                linger_ms=2,
                batch_size=4096,
                delivery_timeout_ms=600_000,
                max_block_ms=600_000,
                **self._settings,
            ) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for partition in range(self._partitions):
                tasks.create_task(self._fill(producer, partition))

    async def _fill(self, producer: Producer, partition: int) -> None:
        """Numbers differ over all partitions."""
        for number in itertools.count(partition, self._partitions):
            if self._enough:
                break
            delivery = await producer.send(self._topic, b"%d" % number, partition=partition)
            delivery.add_done_callback(partial(self._note, partition, number))
            if number // self._partitions % AT_ONCE == 0:
                await asyncio.wait([delivery])

    def _note(self, partition: int, number: int, delivery: asyncio.Future[RecordMetadata]) -> None:
        if not delivery.cancelled() and delivery.exception() is None:
            self.stored[partition][number] = delivery.result().offset
            self._progress.set()

    async def wait_for_more(self, count: int, partitions: Collection[int] | None = None) -> None:
        """Until so many more were acknowledged, in these partitions or in all of them together."""
        counted = range(self._partitions) if partitions is None else partitions
        goal = sum(len(self.stored[each]) for each in counted) + count
        while sum(len(self.stored[each]) for each in counted) < goal:
            self._progress.clear()
            await self._progress.wait()

    def stop(self) -> None:
        self._enough = True

    def judge(self, found: list[list[tuple[int, bytes]]]) -> None:
        """All that was acknowledged is where it was said to be, and everything is there once, in order."""
        for partition, acknowledged in enumerate(self.stored):
            numbers = [int(value) for _, value in found[partition]]
            assert numbers == sorted(set(numbers)), f"partition {partition} has repetitions, or is out of order"
            places = {int(value): offset for offset, value in found[partition]}
            assert acknowledged.items() <= places.items()


class Reader:
    """A member of a group that commits what it has dealt with: everything is seen, some of it more than once."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, partitions: int, settings: dict[str, Any] = PATIENT
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500, **settings}
        self.seen: list[set[int]] = [set() for _ in range(partitions)]
        self.commits = 0
        self.gone_back: list[str] = []
        self._progress = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                await self._life()
            except ClientError as error:
                self.gone_back.append(str(error))

    async def _life(self) -> None:
        async with Consumer[Any, bytes](
            self._bootstrap,
            group_id=self._group,
            topics=[self._topic],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **self._settings,
        ) as consumer:
            while True:
                for record in await consumer.poll(timeout_s=0.5, max_records=200):
                    self.seen[record.partition].add(int(record.value or b""))
                await consumer.commit()
                self.commits += 1
                self._progress.set()

    async def wait_for(self, numbers: list[set[int]]) -> None:
        while not all(wanted <= seen for wanted, seen in zip(numbers, self.seen, strict=True)):
            await self._go_on()

    async def wait_for_commits(self, more: int) -> None:
        goal = self.commits + more
        while self.commits < goal:
            await self._go_on()

    async def _go_on(self) -> None:
        self._progress.clear()
        await self._progress.wait()


class Copy:
    """Reads a topic, and writes what it read to another one, both in one transaction; begins anew after any failure."""

    def __init__(
        self,
        bootstrap: str,
        source: str,
        target: str,
        name: str,
        records_each: int = 50,
        settings: dict[str, Any] = PATIENT,
    ) -> None:
        self._bootstrap = bootstrap
        self._records_each = records_each
        self._source = source
        self._target = target
        self._name = name
        self._settings = settings
        self.committed = 0
        self.rounds_lost = 0
        self._progress = asyncio.Event()

    async def run(self, until: int) -> None:
        """Ends when the group has gone past so many records."""
        while not await self._life(until):
            self.rounds_lost += 1

    async def wait_for(self, count: int) -> None:
        while self.committed < count:
            self._progress.clear()
            await self._progress.wait()

    async def _life(self, until: int) -> bool:
        async with (
            Consumer(
                self._bootstrap,
                group_id=self._name,
                topics=[self._source],
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                **self._settings,
            ) as consumer,
            Producer(
                self._bootstrap, transactional_id=self._name, linger_ms=1, max_block_ms=600_000, **self._settings
            ) as producer,
        ):
            try:
                while self.committed < until:
                    records = await consumer.poll(timeout_s=0.5, max_records=self._records_each)
                    if records:
                        await self._step(consumer, producer, records)
            except (TransactionFailed, ProducerStopped, TimedOut):
                return False
            return True

    async def _step(self, consumer: Consumer, producer: Producer, records: list[Any]) -> None:
        async with producer.transaction():
            for record in records:
                await producer.send(self._target, record.value, partition=record.partition)
            await producer.send_offsets(consumer.positions(), consumer.group_metadata())
        self.committed = sum(consumer.positions().values())
        self._progress.set()


async def everything(
    bootstrap: str, topic: str, partitions: int, *, committed_only: bool
) -> list[list[tuple[int, bytes]]]:
    """(offset, value) of each record, per partition, up to the ends as they are now."""
    level = "read_committed" if committed_only else "read_uncommitted"
    found: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
    places = [TopicPartition(topic, number) for number in range(partitions)]
    async with Consumer(bootstrap, isolation_level=level, **PATIENT) as consumer:  # type: ignore[arg-type]
        ends = await consumer.end_offsets(places)
        await consumer.assign(dict.fromkeys(places, OffsetSpec.earliest()))
        while any(consumer.positions().get(place, 0) < ends[place] for place in places):
            for record in await consumer.poll(timeout_s=1):
                found[record.partition].append((record.offset, record.value or b""))
    return found
