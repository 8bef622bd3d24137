"""A cluster of real brokers with a real ZooKeeper, on empty directories, and an observer of what ZooKeeper holds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from bench import work_dirs
from bench.registry_watch import RegistryWatch
from tidelog.errors import ErrorCode
from tidelog.testing.cluster import ClusterProcesses
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.znodes.launcher import ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATIENCE_S = 120.0
_ELECT_VERSION = 2
_PREFERRED = 0
_SETTINGS = {
    "auto.create.topics.enable": "false",
    # Leaders move when the bench says so, and replicas stay in sync on a machine that is busy making partitions.
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "30000",
}


class Stage(NamedTuple):
    cluster: ClusterProcesses
    registry: RegistryWatch

    def create(self, topic: str, partitions: int, replicas: int = 3) -> None:
        self.cluster.create_topic(topic, partitions, replicas)
        self.cluster.wait_until_in_sync(topic)

    def bring_back(self, broker: int, *topics: str) -> None:
        """Starts a broker again and waits until everything is as it was before it went: it leads its share."""
        self.cluster.restart(broker)
        self.cluster.wait_until_whole()
        self.cluster.wait_until_in_sync(*topics)
        self.prefer_first_replicas()

    def prefer_first_replicas(self) -> None:
        request = ElectLeadersRequest(
            election_type=_PREFERRED, topic_partitions=None, timeout_ms=int(_PATIENCE_S * 1000)
        )
        with self.cluster.connect(self.cluster.wait_for_controller(), timeout_s=_PATIENCE_S) as client:
            reply = client.call(request, _ELECT_VERSION, ElectLeadersResponse)
        codes = {
            reply.error_code,
            *(each.error_code for topic in reply.replica_election_results for each in topic.partition_result),
        }
        if codes - {ErrorCode.NONE}:
            raise RuntimeError(f"preferred leaders were not elected: {sorted(codes)}")

    def set_session_timeout(self, milliseconds: int) -> None:
        """Restarts all brokers with another session timeout."""
        for number in self.cluster.numbers:
            self.cluster.stop(number)
        for number in self.cluster.numbers:
            self.cluster.broker(number).settings["zookeeper.session.timeout.ms"] = str(milliseconds)
        self.cluster.start()


@contextmanager
def stage(settings: Mapping[str, str], brokers: int = 3) -> Iterator[Stage]:
    with (
        work_dirs.work_dir(work_dirs.on_disk()) as path,
        ZooKeeperServers(path / "zookeeper") as zookeeper,
        ClusterProcesses(path / "cluster", zookeeper.connect_string, brokers, {**_SETTINGS, **settings}) as cluster,
        RegistryWatch(cluster.zookeeper_connect) as registry,
    ):
        yield Stage(cluster, registry)
