"""Brokers that die while a batch is decided and completed, in a cluster of three."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from sink_runs import ROWS, Checkpoint, Driver, create_topic, last_decision, open_transactions, visible

from tidelog.client.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]

SETTINGS = {"transaction.state.log.num.partitions": "6"}


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    Driver.end_all()


def coordinator(bootstrap: str, transactional_id: str) -> int:
    async def ask() -> int:
        async with Admin(bootstrap) as admin:
            return (await admin.describe_transaction(transactional_id)).coordinator

    return asyncio.run(ask())


@pytest.mark.parametrize("step", ["adopt", "decided but for the end", "complete", "one is completed"])
def test_what_is_decided_is_completed_without_the_broker_that_should_have(
    start_cluster: StartCluster, topic: str, tmp_path: Path, step: str
) -> None:
    """It coordinates a transaction of the batch, leads partitions of the output, and maybe of the decisions."""
    cluster = start_cluster(3, SETTINGS)
    create_topic(cluster.bootstrap, topic, replicas=3)
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    victims: list[int] = []
    killed: list[int] = []

    def kills(name: str) -> None:
        if name == step and victims:
            killed.append(victims.pop())
            cluster.kill(killed[-1])

    driver = Driver(cluster.bootstrap, topic, checkpoint, step=kills)
    driver.batch()
    _check(cluster, topic, checkpoint, batches=1)  # readers have their own internal topic, which is made by all three
    batch = checkpoint.plan()
    messages = driver.write(batch)
    prepared = messages[0].prepared
    assert prepared is not None
    victims.append(coordinator(cluster.bootstrap, prepared.transactional_id))
    driver.commit(batch, messages)
    assert killed
    checkpoint.finish(batch)
    driver.batch()
    _check(cluster, topic, checkpoint, batches=3)
    cluster.restart(killed[0])
    Driver(cluster.bootstrap, topic, checkpoint).batch()
    _check(cluster, topic, checkpoint, batches=4)


def test_driver_and_broker_die_together(start_cluster: StartCluster, topic: str, tmp_path: Path) -> None:
    """Right after the decision. Whoever comes next completes it from the record."""
    cluster = start_cluster(3, SETTINGS)
    create_topic(cluster.bootstrap, topic, replicas=3)
    checkpoint = Checkpoint(tmp_path / "checkpoint")

    class Died(BaseException):
        pass

    def dies(name: str) -> None:
        if name == "complete":
            raise Died

    assert visible(cluster.bootstrap, topic) == []
    first = Driver(cluster.bootstrap, topic, checkpoint, step=dies)
    with pytest.raises(Died):
        first.batch()
    decision = last_decision(first)
    assert decision is not None
    cluster.kill(coordinator(cluster.bootstrap, decision.winners[0].transactional_id))
    second = Driver(cluster.bootstrap, topic, checkpoint)
    messages = second.write(0)
    assert all(each.prepared is None for each in messages)
    second.commit(0, messages)
    checkpoint.finish(0)
    second.batch()
    _check(cluster, topic, checkpoint, batches=2)


def _check(cluster: ClusterProcesses, topic: str, checkpoint: Checkpoint, *, batches: int) -> None:
    assert visible(cluster.bootstrap, topic) == list(range(batches * ROWS))
    assert open_transactions(cluster.bootstrap, checkpoint.query) == []
