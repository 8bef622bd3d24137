"""aiokafka: an asyncio client with a record format of its own in Cython."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from client_drivers import DEFAULT_WRITING, Got, ReadDeadline, Sent, Writing

if TYPE_CHECKING:
    from collections.abc import Sequence


class AiokafkaDriver:
    name = "aiokafka"

    def can_write(self, record: Sent) -> bool:
        return not (record.value is None and record.key is None)

    def write(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing = DEFAULT_WRITING
    ) -> list[int] | None:
        return asyncio.run(self._write(bootstrap, topic, records, how))

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Got]:
        return asyncio.run(self._read(bootstrap, TopicPartition(topic, partition), count, start))

    async def _write(self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing) -> list[int] | None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if how.codec == "none" else how.codec,
            acks="all" if how.acks == "all" else int(how.acks),
            enable_idempotence=how.idempotent,
            max_request_size=max(how.max_bytes, 1_048_576),
            linger_ms=5,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=how.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await producer.flush()
            delivered = await asyncio.gather(*futures)
        finally:
            await producer.stop()
        return [place.offset for place in delivered] if how.acks != "0" else None

    async def _read(self, bootstrap: str, place: Any, count: int, start: int) -> list[Got]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="none", check_crcs=True, fetch_max_wait_ms=100
        )
        got: list[Got] = []
        deadline = ReadDeadline(self.name, count)
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            while len(got) < count:
                deadline.check(len(got))
                came = await consumer.getmany(place, timeout_ms=100)
                got.extend(_got(record) for record in came.get(place, []))
        finally:
            await consumer.stop()
        return got[:count]


def _got(record: Any) -> Got:
    return Got(
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple((name, content) for name, content in record.headers),
    )
