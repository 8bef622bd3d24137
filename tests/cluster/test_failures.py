"""Three brokers, three replicas, two of them in sync at least, acks=all: what is acknowledged outlives every failure.

Each failure comes while idempotent producers write. `make test-cluster ROUNDS=N` repeats each as often.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from failures import FAILURES, a_leader_is_killed, survive

from tidelog.znodes.launcher import ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster_fixtures import StartCluster
    from cluster_load import Load

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(7200)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_what_was_acknowledged_survives_when(
    start_cluster: StartCluster,
    rounds: int,
    capsys: pytest.CaptureFixture[str],
    failure: Callable[[ClusterProcesses, Load, int], None],
) -> None:
    cluster = start_cluster()
    survive(cluster, failure, rounds, capsys)


@pytest.mark.parametrize("servers", [1, 3])
def test_what_was_acknowledged_survives_when_a_zookeeper_server_restarts(
    start_cluster: StartCluster, tmp_path: Path, rounds: int, capsys: pytest.CaptureFixture[str], servers: int
) -> None:
    with ZooKeeperServers(tmp_path / "zookeeper", servers) as zookeeper:
        cluster = start_cluster(zookeeper=zookeeper)

        def a_zookeeper_server_restarts(cluster: ClusterProcesses, load: Load, number: int) -> None:
            zookeeper.restart(1 + number % servers)
            load.wait_for_acks()
            # And the cluster still does what it needs ZooKeeper for.
            a_leader_is_killed(cluster, load, number)

        survive(cluster, a_zookeeper_server_restarts, max(rounds, min(servers, 2)), capsys)


def test_what_was_acknowledged_survives_a_bad_day(
    start_cluster: StartCluster, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failures of all kinds one upon the other, without waiting until the last one is healed."""
    chance = random.Random(7)

    def anything(cluster: ClusterProcesses, load: Load, number: int) -> None:
        victim, other = chance.sample(cluster.numbers, 2)
        cluster.kill(victim)
        if chance.random() < 0.5:
            cluster.pause(other)
            cluster.restart(victim)
            cluster.resume(other)
        else:
            cluster.restart(victim)
            cluster.kill(other)
            cluster.restart(other)
        if number % 3 == 2:
            load.wait_for_acks()

    survive(start_cluster(), anything, max(4, 2 * rounds), capsys, wait=False)
