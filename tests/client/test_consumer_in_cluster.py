"""Consumers in a real cluster: they read near by, and outlive leaders and coordinators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.client import CommitFailed, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from cluster_fixtures import StartCluster

pytest_plugins = ["cluster_fixtures"]

PARTITIONS = 3
COUNT = 1500
WITHIN_S = 120.0
"""For hanging, not for slowness."""


def test_the_replica_of_the_same_rack_is_read(start_cluster: StartCluster, topic: str) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = start_cluster(2, {"replica.selector.class": selector}, racks=["a", "b"])
    cluster.create_topic(topic, partitions=2, replicas=2)
    wanted = [TopicPartition(topic, number) for number in range(2)]

    async def scenario() -> None:
        async with Producer(cluster.bootstrap) as producer:
            for number in range(100):
                await producer.send(topic, b"%d" % number, partition=number % 2)
        for rack in ("a", "b"):
            async with Consumer(cluster.bootstrap, client_rack=rack) as consumer, asyncio.timeout(WITHIN_S):
                await consumer.assign(dict.fromkeys(wanted, 0))
                for _ in range(100):
                    await anext(aiter(consumer))
                metadata = consumer._cluster.metadata
                for partition in wanted:
                    leader = metadata.leader_of(partition)
                    assert leader is not None
                    preferred = consumer._fetcher.buffers[partition].preferred
                    source = leader if preferred is None else metadata.nodes[preferred[0]]
                    assert source.rack == rack

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_outlive_leaders_and_coordinators(start_cluster: StartCluster, topic: str, protocol: str) -> None:
    settings = {
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "3",
        "min.insync.replicas": "2",
        "group.initial.rebalance.delay.ms": "0",
    }
    cluster = start_cluster(3, settings)
    cluster.create_topic(topic, partitions=PARTITIONS, replicas=3)
    seen: set[tuple[int, int]] = set()
    arrived = asyncio.Event()

    async def member() -> None:
        consumer = Consumer(
            cluster.bootstrap,
            group_id=f"group of {topic}",
            group_protocol=protocol,  # type: ignore[arg-type]
            topics=[topic],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=10_000,
        )
        async with consumer:
            while len(seen) < COUNT:
                records = await consumer.poll(0.5, max_records=20)
                try:
                    await consumer.commit()
                except CommitFailed:
                    continue  # others read them again
                seen.update((record.partition, record.offset) for record in records)
                arrived.set()

    async def wait_for(count: int) -> None:
        while len(seen) < count:
            arrived.clear()
            await arrived.wait()

    async def kill_one_after_the_other() -> None:
        for victim in cluster.numbers:
            await wait_for(victim * COUNT // 5)
            await asyncio.to_thread(cluster.kill, victim)
            await wait_for(victim * COUNT // 5 + COUNT // 10)
            await asyncio.to_thread(cluster.restart, victim)
            await asyncio.to_thread(cluster.wait_until_in_sync, topic)

    async def scenario() -> None:
        async with Producer(cluster.bootstrap) as producer:
            for number in range(COUNT):
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(member())
            tasks.create_task(member())
            tasks.create_task(kill_one_after_the_other())

    asyncio.run(scenario())
    assert len(seen) == COUNT
