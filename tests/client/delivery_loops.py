"""Work that goes on while brokers are killed, and what must be true of its records afterwards."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tidelog.client import (
    Consumer,
    OffsetSpec,
    Producer,
    ProducerStopped,
    RecordMetadata,
    TimedOut,
    TopicPartition,
    TransactionFailed,
)

PATIENT: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "request_timeout_ms": 10_000,
    "default_api_timeout_ms": 600_000,
}


class Load:
    """An idempotent producer that never stops sending, and what it was told."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self.stored: list[dict[int, int]] = [{} for _ in range(partitions)]
        self._progress = asyncio.Event()
        self._enough = asyncio.Event()

    async def run(self) -> None:
        async with Producer(
            self._bootstrap, linger_ms=2, batch_size=4096, delivery_timeout_ms=600_000, max_block_ms=600_000, **PATIENT
        ) as producer:
            deliveries: list[Any] = []
            number = 0
            while not self._enough.is_set():
                partition = number % self._partitions
                delivery = await producer.send(self._topic, b"%d" % number, partition=partition)
                delivery.add_done_callback(partial(self._note, partition, number))
                deliveries.append(delivery)
                number += 1
                if number % 200 == 0:
                    await asyncio.wait([deliveries[-1]])
            await producer.flush()

    def _note(self, partition: int, number: int, delivery: asyncio.Future[RecordMetadata]) -> None:
        if not delivery.cancelled() and delivery.exception() is None:
            self.stored[partition][number] = delivery.result().offset
            self._progress.set()

    async def wait_for_more(self, count: int) -> None:
        """Until so many more were acknowledged."""
        goal = sum(map(len, self.stored)) + count
        while sum(map(len, self.stored)) < goal:
            self._progress.clear()
            await self._progress.wait()

    def stop(self) -> None:
        self._enough.set()


class Copy:
    """Reads a topic, and writes what it read to another one, both in one transaction; begins anew after any failure."""

    def __init__(self, bootstrap: str, source: str, target: str, name: str, records_each: int = 50) -> None:
        self._bootstrap = bootstrap
        self._records_each = records_each
        self._source = source
        self._target = target
        self._name = name
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
                **PATIENT,
            ) as consumer,
            Producer(
                self._bootstrap, transactional_id=self._name, linger_ms=1, max_block_ms=600_000, **PATIENT
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
