"""What the client is proven against: our broker, our cluster of three, librdkafka's mock cluster and Apache Kafka.

A test asks for `target` and is marked with who serves what it needs: `everywhere`, or `on_real_brokers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.client import Admin, Producer
from tidelog.testing import BrokerProcess
from tidelog.testing.cluster import ClusterProcesses
from tidelog.znodes.launcher import ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARTITIONS = 4
"""Of every topic; as many as librdkafka's mock gives to the topics it makes by itself."""

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    bootstrap: str
    brokers: int

    @property
    def real(self) -> bool:
        """Whether it is a broker with all that belongs to one, and not the mock."""
        return self.name != "mock"

    async def make_topic(self, name: str, **configs: str) -> str:
        if self.real:
            async with Admin(self.bootstrap) as admin:
                await admin.create_topic(
                    name, partitions=PARTITIONS, replication_factor=self.brokers, configs=configs or None
                )
        else:
            async with Producer(self.bootstrap) as producer:
                assert await producer.partitions_for(name) == PARTITIONS
        return name


def _one_broker(directory: Path) -> Iterator[Target]:
    with BrokerProcess(directory, QUICK) as broker:
        yield Target("broker", broker.bootstrap, 1)


def _cluster_of_three(directory: Path) -> Iterator[Target]:
    with (
        ZooKeeperServers(directory / "zookeeper") as zookeeper,
        ClusterProcesses(directory / "cluster", zookeeper.connect_string, 3, QUICK) as cluster,
    ):
        yield Target("cluster", cluster.bootstrap, 3)


def _mock_of_librdkafka(_directory: Path) -> Iterator[Target]:
    from confluent_kafka import Producer as LibrdkafkaProducer

    owner = LibrdkafkaProducer({"test.mock.num.brokers": 3, "bootstrap.servers": "unused", "log_level": 0})
    brokers = owner.list_topics(timeout=30).brokers.values()
    yield Target("mock", ",".join(f"{broker.host}:{broker.port}" for broker in brokers), 3)
    del owner


def _apache_kafka(directory: Path) -> Iterator[Target]:
    from apache_kafka import KafkaProcess

    with KafkaProcess(directory, QUICK) as kafka:
        yield Target("kafka", kafka.bootstrap, 1)


TARGETS: dict[str, Callable[[Path], Iterator[Target]]] = {
    "broker": _one_broker,
    "cluster": _cluster_of_three,
    "mock": _mock_of_librdkafka,
    "kafka": _apache_kafka,
}

# All tests of what takes long to start run in one worker, so that it starts once.
_REAL: list[Any] = [
    "broker",
    pytest.param("cluster", marks=pytest.mark.xdist_group("client suite: cluster")),
    pytest.param("kafka", marks=[pytest.mark.peers, pytest.mark.xdist_group("client suite: kafka")]),
]
everywhere = pytest.mark.parametrize("target", [*_REAL, "mock"], indirect=True, scope="session")
on_real_brokers = pytest.mark.parametrize("target", _REAL, indirect=True, scope="session")
