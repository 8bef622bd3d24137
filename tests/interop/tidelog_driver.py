"""Tidelog's own asyncio client, as one among the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from client_drivers import DEFAULT_WRITING, Got, ReadDeadline, Sent, Writing

from tidelog.client import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

ACKS: dict[str, Literal["all", 0, 1]] = {"all": "all", "0": 0, "1": 1}


class TidelogDriver:
    name = "tidelog"

    def can_write(self, record: Sent) -> bool:
        del record
        return True

    def write(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing = DEFAULT_WRITING
    ) -> list[int] | None:
        return asyncio.run(self._write(bootstrap, topic, records, how))

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Got]:
        return asyncio.run(self._read(bootstrap, TopicPartition(topic, partition), count, start))

    async def _write(self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing) -> list[int] | None:
        async with Producer(
            bootstrap,
            compression_type=how.codec,
            acks=ACKS[how.acks],
            enable_idempotence=how.idempotent,
            max_request_size=max(how.max_bytes, 1 << 20),
        ) as producer:
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=how.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            delivered = await asyncio.gather(*futures)
        return [place.offset for place in delivered] if how.acks != "0" else None

    async def _read(self, bootstrap: str, place: TopicPartition, count: int, start: int) -> list[Got]:
        got: list[Got] = []
        deadline = ReadDeadline(self.name, count)
        async with Consumer[bytes, bytes](bootstrap, fetch_max_wait_ms=100) as consumer:
            await consumer.assign({place: start})
            while len(got) < count:
                deadline.check(len(got))
                got += [
                    Got(record.offset, record.timestamp, record.key, record.value, record.headers)
                    for record in await consumer.poll(0.1, max_records=count - len(got))
                ]
        return got
