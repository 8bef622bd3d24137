"""The consumer as a member of groups, against a real broker."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.client import Admin, Consumer, ConsumerConfig, Producer, RebalanceListener, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_fixtures import GroupBroker

pytest_plugins = ["group_fixtures"]

PROTOCOLS = ["classic", "consumer"]
WITHIN_S = 60.0
"""For hanging, not for slowness."""


@pytest.fixture
def at(group_broker: GroupBroker) -> str:
    return group_broker.bootstrap


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def settings(group: str, protocol: str = "classic", **more: Any) -> ConsumerConfig:
    chosen: dict[str, Any] = {
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
        "fetch_max_wait_ms": 100,
        "enable_auto_commit": False,
    }
    return ConsumerConfig(**(chosen | more))


class Diary(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.entries.append(("assigned", partitions))

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.entries.append(("revoked", partitions))

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.entries.append(("lost", partitions))


async def create(at: str, topic: str, partitions: int, records_each: int = 0) -> set[TopicPartition]:
    async with Admin(at) as admin:
        await admin.create_topic(topic, partitions=partitions)
    if records_each:
        await fill(at, topic, partitions, records_each)
    return {TopicPartition(topic, number) for number in range(partitions)}


async def fill(at: str, topic: str, partitions: int, records_each: int) -> None:
    async with Producer(at) as producer:
        for number in range(records_each):
            for partition in range(partitions):
                await producer.send(topic, b"%d" % number, partition=partition)


async def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += [(record.partition, record.offset) for record in await consumer.poll(1)]
    return found


async def polling(consumers: list[Consumer], until: Callable[[], bool]) -> None:
    """All of them ask for records until something holds."""
    async with asyncio.timeout(WITHIN_S):
        while not until():
            await asyncio.gather(*(consumer.poll(0.05) for consumer in consumers))


def shared(consumers: list[Consumer], wanted: set[TopicPartition]) -> Callable[[], bool]:
    """Every partition has one reader, and every reader has some."""

    def settled() -> bool:
        owned = [partition for consumer in consumers for partition in consumer.assignment]
        return sorted(owned) == sorted(wanted) and all(consumer.assignment for consumer in consumers)

    return settled


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_committed(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 2, 10)
        async with Consumer(at, settings(group, protocol), topics=[topic]) as consumer:
            found = await read(consumer, 20)
            assert sorted(found) == [(partition, offset) for partition in range(2) for offset in range(10)]
            assert consumer.assignment == wanted
            await consumer.commit()
            committed = await consumer.committed()
            assert {partition: at and at.offset for partition, at in committed.items()} == dict.fromkeys(wanted, 10)
        await fill(at, topic, 2, 1)
        async with Consumer(at, settings(group, protocol), topics=[topic]) as consumer:
            assert sorted(await read(consumer, 2)) == [(0, 10), (1, 10)]

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_inherit(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 4)
        async with Consumer(at, settings(group, protocol), topics=[topic]) as first:
            await polling([first], shared([first], wanted))
            async with Consumer(at, settings(group, protocol), topics=[topic]) as second:
                await polling([first, second], shared([first, second], wanted))
                assert len(first.assignment) == len(second.assignment) == 2
            await polling([first], shared([first], wanted))

    asyncio.run(scenario())
