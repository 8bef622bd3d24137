"""Reading in the client suite: how much is awaited, and for how long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.client import Consumer, OffsetSpec

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord

WITHIN_S = 60.0
"""For hanging, not for slowness."""


async def take(consumer: Consumer[Any, Any], count: int) -> list[ConsumerRecord[Any, Any]]:
    """The next so many records, and no more than that."""
    found: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += await consumer.poll(1, max_records=count - len(found))
    return found


async def read_all(bootstrap: str, topic: str, count: int, **settings: Any) -> list[ConsumerRecord[Any, Any]]:
    """The first so many records of a topic, in order of partition and offset."""
    async with Consumer[Any, Any](bootstrap, **settings) as consumer:
        await consumer.assign_topics([topic], OffsetSpec.earliest())
        return sorted(await take(consumer, count), key=lambda record: (record.partition, record.offset))


def by_partition(records: list[ConsumerRecord[Any, Any]]) -> dict[int, list[Any]]:
    """The values of each partition, as they came."""
    found: dict[int, list[Any]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record.value)
    return found
