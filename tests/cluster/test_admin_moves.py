"""Admin moves partitions between brokers, watches them go, and has them led by whom they should."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.client import Admin, NewTopic, Producer, TopicPartition

if TYPE_CHECKING:
    from cluster_fixtures import StartCluster

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(600)


def test_partitions_move_and_are_led_from_where_they_went(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    first, second, third = cluster.numbers
    moving, staying = TopicPartition("t", 0), TopicPartition("t", 1)

    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            (await admin.create_topics([NewTopic("t", assignments=[[first], [third]])])).results()
            for _ in range(64):
                await producer.send("t", bytes(10_000), partition=0)
            await producer.flush()

            (await admin.alter_reassignments({moving: [second, third]})).results()
            seen = [progress async for progress in admin.follow_reassignments([moving], interval_s=0.05)]
            assert (seen[-1].done, seen[-1].total) == (1, 1)
            assert all(progress.done == 0 for progress in seen[:-1])
            assert all(progress.moving[moving].adding == (second, third) for progress in seen[:-1])

            while (placed := (await admin.describe_topic("t")).partitions[0]).replicas != (second, third):
                pass
            assert placed.leader in {second, third}
            held = {each.broker for each in await admin.describe_log_dirs() if moving in each.partition_bytes}
            assert {second, third} <= held

            # Whoever is preferred leads at the end, whether or not something had to change.
            elected = await admin.elect_leaders([moving, staying])
            assert set(elected.results()) == {moving, staying}
            while (await admin.describe_topic("t")).partitions[0].leader != second:
                pass
            assert await admin.elect_leaders([moving]) == {moving: False}
            assert {each.id for each in (await admin.describe_cluster()).brokers} == set(cluster.numbers)

    asyncio.run(scenario())
