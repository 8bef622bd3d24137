"""Brokers of a cluster die, hang and restart under our producers, groups and transactions, all at the same time.

At least once loses nothing, exactly once neither loses nor repeats.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from committed_reader import committed_values
from delivery_loops import Copy, Load, Reader, everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]

PARTITIONS = 3
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}


def killed(cluster: ClusterProcesses, topic: str) -> Callable[[], None]:
    victim = cluster.leader(topic, 0)
    cluster.kill(victim)
    cluster.wait_until_led(topic)
    return lambda: cluster.restart(victim)


def hanging(cluster: ClusterProcesses, topic: str) -> Callable[[], None]:
    victim = cluster.leader(topic, 1)
    cluster.pause(victim)
    cluster.wait_until_led(topic)
    return lambda: cluster.resume(victim)


def shut_down(cluster: ClusterProcesses, topic: str) -> Callable[[], None]:
    """Its leaders and coordinators move before it goes."""
    victim = cluster.leader(topic, 2)
    cluster.stop(victim)
    return lambda: cluster.restart(victim)


FAILURES = [hanging, killed, shut_down]


def test_leaders_and_coordinators_move_under_all_kinds_of_clients(
    start_cluster: StartCluster, topic: str, rounds: int
) -> None:
    failures = [FAILURES[number % len(FAILURES)] for number in range(rounds)] if rounds > 2 else FAILURES[:1]
    cluster = start_cluster(3, SETTINGS)
    target = f"{topic}-out"
    for each in (topic, target):
        cluster.create_topic(each, partitions=PARTITIONS, replicas=3)

    async def scenario() -> list[list[tuple[int, bytes]]]:
        load = Load(cluster.bootstrap, topic, PARTITIONS)
        reader = Reader(cluster.bootstrap, topic, f"readers-{topic}", PARTITIONS)
        copy = Copy(cluster.bootstrap, topic, target, f"copy-{topic}", records_each=1000)
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(load.run())
            reading = tasks.create_task(reader.run())
            copying = tasks.create_task(copy.run(1 << 62))
            for failure in failures:
                await copy.wait_for(copy.committed + 100)  # so that its coordinators are there to be moved
                mend = await asyncio.to_thread(failure, cluster, topic)
                await load.wait_for_more(500)
                await copy.wait_for(copy.committed + 100)
                await asyncio.to_thread(mend)
                await asyncio.to_thread(cluster.wait_until_whole)
                await asyncio.to_thread(cluster.wait_until_in_sync, topic, target)
            load.stop()
            await sending
            stored = await everything(cluster.bootstrap, topic, PARTITIONS, committed_only=False)
            await reader.wait_for([{int(value) for _, value in partition} for partition in stored])
            await copy.wait_for(sum(map(len, stored)))
            reading.cancel()
            copying.cancel()
        load.judge(stored)
        return stored

    stored = asyncio.run(scenario())
    expected = [value for partition in stored for _, value in partition]
    assert committed_values(cluster.bootstrap, target, PARTITIONS) == expected
