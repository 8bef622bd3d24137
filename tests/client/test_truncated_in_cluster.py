"""A consumer in a real cluster whose leader dies, and is followed by one that lacks some of what it has read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.client import Admin, Consumer, LogTruncated, Producer, TopicPartition

if TYPE_CHECKING:
    from cluster_fixtures import StartCluster

pytest_plugins = ["cluster_fixtures"]

WITHIN_S = 120.0
"""For hanging, not for slowness."""


async def write(bootstrap: str, topic: str, what: bytes, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%s %d" % (what, number))


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [record.value for record in await consumer.poll(max_records=count - len(found))]
    return found


def test_a_consumer_learns_that_what_it_has_read_was_lost(start_cluster: StartCluster, topic: str) -> None:
    cluster = start_cluster(2, {"min.insync.replicas": "1", "auto.leader.rebalance.enable": "false"})
    cluster.create_topic(topic, replicas=2, settings={"unclean.leader.election.enable": "true"})
    place = TopicPartition(topic, 0)

    async def scenario() -> None:
        first = cluster.leader(topic)
        second = next(number for number in cluster.numbers if number != first)
        await write(cluster.bootstrap, topic, b"kept", 10)
        await asyncio.to_thread(cluster.wait_until_in_sync, topic)
        await asyncio.to_thread(cluster.stop, second)
        async with Consumer(cluster.bootstrap, request_timeout_ms=5000) as consumer, asyncio.timeout(WITHIN_S):
            await write(cluster.bootstrap, topic, b"lost", 10)
            await consumer.assign({place: 0})
            assert (await read(consumer, 20))[10:] == [b"lost %d" % number for number in range(10)]
            await asyncio.to_thread(cluster.kill, first)
            await asyncio.to_thread(cluster.restart, second)
            await asyncio.to_thread(cluster.wait_until_led, topic)
            # More than were lost: only whoever compares sees that the next is not a continuation.
            await write(cluster.bootstrap, topic, b"other", 15)
            with pytest.raises(LogTruncated) as caught:
                await read(consumer, 1)
            assert (caught.value.partition, caught.value.offset, caught.value.safe_offset) == (place, 20, 10)
            await consumer.seek(place, 10)
            assert await read(consumer, 15) == [b"other %d" % number for number in range(15)]
        async with Admin(cluster.bootstrap) as admin:
            assert (await admin.describe_topic(topic)).partitions[0].leader == second

    asyncio.run(scenario())
