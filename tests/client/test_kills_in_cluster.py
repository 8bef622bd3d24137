"""Brokers of a cluster are killed while our clients copy records in transactions, or ask all brokers something."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from committed_reader import committed_values
from delivery_loops import Copy

from tidelog.client import Admin, Producer
from tidelog.client.transactions import line

if TYPE_CHECKING:
    from cluster_fixtures import StartCluster

pytest_plugins = ["cluster_fixtures"]

PARTITIONS = 3


@pytest.mark.parametrize("rules", ["newer", "older"])
def test_leaders_and_coordinators_die_and_nothing_is_lost_or_repeated(
    start_cluster: StartCluster, topic: str, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rules == "older":
        monkeypatch.setattr(line, "TRANSACTION_VERSION", "a feature that no broker has")
    cluster = start_cluster(3, {"transaction.state.log.num.partitions": "3", "min.insync.replicas": "2"})
    source, count = f"{topic}-in", 4000
    for each in (source, topic):
        cluster.create_topic(each, partitions=PARTITIONS, replicas=3)

    async def scenario() -> None:
        async with Producer(cluster.bootstrap) as producer:
            for number in range(count):
                await producer.send(source, b"%d" % number, partition=number % PARTITIONS)
        copy = Copy(cluster.bootstrap, source, topic, f"copy-{topic}")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy.run(count))
            for victim in cluster.numbers:
                await copy.wait_for(victim * count // 5)
                await asyncio.to_thread(cluster.kill, victim)
                await copy.wait_for(victim * count // 5 + count // 10)  # without it
                await asyncio.to_thread(cluster.restart, victim)
                await asyncio.to_thread(cluster.wait_until_in_sync, source, topic)

    asyncio.run(scenario())
    expected = [b"%d" % number for first in range(PARTITIONS) for number in range(first, count, PARTITIONS)]
    assert committed_values(cluster.bootstrap, topic, PARTITIONS) == expected


def test_lists_are_those_of_the_brokers_that_are_left(start_cluster: StartCluster, topic: str) -> None:
    """A broker that has just died is asked until the cluster has noticed, and not until all patience has run out."""
    cluster = start_cluster(3, {"transaction.state.log.num.partitions": "3"})
    cluster.create_topic(topic, partitions=1, replicas=3)
    names = [f"{topic}-{number}" for number in range(4)]

    async def scenario() -> None:
        producers = [Producer(cluster.bootstrap, transactional_id=name) for name in names]
        async with Admin(cluster.bootstrap, default_api_timeout_ms=3_600_000) as admin:
            for producer in producers:
                await producer.start()
                await producer.begin()
                await producer.send(topic, b"x")
                await producer.flush()
            before = await admin.list_transactions(states=["Ongoing"])
            assert [each.transactional_id for each in before] == names
            await asyncio.to_thread(cluster.kill, before[0].coordinator)
            after = await admin.list_transactions(states=["Ongoing"])
            while [each.transactional_id for each in after] != names:  # others take over one by one
                after = await admin.list_transactions(states=["Ongoing"])
            assert before[0].coordinator not in {each.coordinator for each in after}
            for producer in producers:
                await producer.abort()
                await producer.close()

    asyncio.run(scenario())
