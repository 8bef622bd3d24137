"""Fixtures of the cluster tests: one ZooKeeper for all clusters of a worker, and clusters to be broken."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.net.address import Address
from tidelog.testing.cluster import ClusterProcesses
from tidelog.testing.cluster_network import ClusterNetwork
from tidelog.znodes.launcher import ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


class StartCluster:
    """Starts clusters for one test, and ends them with it."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServers) -> None:
        self.started: list[ClusterProcesses] = []
        self._directory = directory
        self._zookeeper = zookeeper

    def __call__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str] = {},
        *,
        zookeeper: ZooKeeperServers | None = None,
        racks: Sequence[str] = (),
    ) -> ClusterProcesses:
        directory = self._directory / f"cluster-{len(self.started)}"
        connect = (zookeeper or self._zookeeper).connect_string
        cluster = ClusterProcesses(directory, connect, brokers, settings, racks=racks)
        self.started.append(cluster)
        return cluster.start()

    def close(self) -> None:
        for cluster in self.started:
            cluster.close()


Place = tuple[ClusterProcesses, ClusterNetwork]


@pytest.fixture(scope="session")
def cluster_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    """Leave it running: each cluster has a node of its own there."""
    with ZooKeeperServers(tmp_path_factory.mktemp("cluster-zookeeper")) as servers:
        yield servers


@pytest.fixture
def start_cluster(tmp_path: Path, cluster_zookeeper: ZooKeeperServers) -> Iterator[StartCluster]:
    start = StartCluster(tmp_path, cluster_zookeeper)
    yield start
    start.close()


@pytest.fixture
def place(tmp_path: Path, cluster_zookeeper: ZooKeeperServers) -> Iterator[Place]:
    """Three brokers, and the network that they live in. Takes root's rights."""
    host, _, port = cluster_zookeeper.address(1).rpartition(":")
    settings = {"transaction.state.log.num.partitions": "3"}
    with ClusterNetwork(3, Address(host, int(port))) as network:
        cluster = ClusterProcesses(tmp_path / "cluster", network.zookeeper_connect, settings=settings, network=network)
        with cluster:
            yield cluster, network


@pytest.fixture(scope="session")
def rounds() -> int:
    """How often each failure is repeated; `make test-cluster` sets it."""
    return int(os.environ.get("CLUSTER_ROUNDS", "1"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    start = getattr(item, "funcargs", {}).get("start_cluster")
    if report.failed and isinstance(start, StartCluster):
        for cluster in start.started:
            report.sections.append(
                ("logs of the cluster", cluster.log_tails(int(os.environ.get("CLUSTER_LOG_LINES", "30"))))
            )
    return report
