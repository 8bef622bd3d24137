"""Fixtures of the peer tests: the foreign clients, and a broker for them.

The same tests run against Apache Kafka itself with `TIDELOG_PEERS_AGAINST=kafka` in the environment: what they demand
of Tidelog is then known to hold of Kafka.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest
from apache_kafka import KafkaProcess
from confluent_kafka.admin import AdminClient, NewTopic
from drivers import CommandPeer, ConfluentPeer, Peer, franz_go_peer, java_peer, kafkajs_peer

from tidelog.testing import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

ADMIN_TIMEOUT_S = 30.0


class Broker(Protocol):
    """What a test needs to know of the process under test."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def data_dir(self) -> Path: ...

    def stop(self) -> int: ...

    def close(self) -> None: ...


class CreateTopic(Protocol):
    def __call__(self, name: str, partitions: int = 1, config: Mapping[str, str] = ...) -> str:
        """Creates the topic and gives its name back."""


class StartBroker(Protocol):
    def __call__(self, settings: Mapping[str, str]) -> Broker: ...


def against_kafka() -> bool:
    return os.environ.get("TIDELOG_PEERS_AGAINST", "tidelog") == "kafka"


def start_broker(data_dir: Path, settings: Mapping[str, str]) -> Broker:
    if against_kafka():
        return KafkaProcess(data_dir, settings).start()
    return BrokerProcess(data_dir, settings).start()


@pytest.fixture(scope="session")
def peer_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all peer tests of a worker."""
    broker = start_broker(tmp_path_factory.mktemp("peer-broker"), {})
    yield broker
    broker.close()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Brokers of the test's own, for tests that stop them or look into their files."""
    started: list[Broker] = []

    def start(settings: Mapping[str, str]) -> Broker:
        started.append(start_broker(tmp_path / f"broker-{len(started)}", settings))
        return started[-1]

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def create_topic(peer_broker: Broker) -> CreateTopic:
    def create(name: str, partitions: int = 1, config: Mapping[str, str] = {}) -> str:
        create_on(peer_broker, name, partitions, config)
        return name

    return create


def create_on(broker: Broker, name: str, partitions: int = 1, config: Mapping[str, str] = {}) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config))
    admin.create_topics([wanted], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)


PEERS: dict[str, Callable[[], Peer]] = {
    "java": java_peer,
    "franz-go": franz_go_peer,
    "kafkajs": kafkajs_peer,
    "confluent": ConfluentPeer,
}


@pytest.fixture(scope="session")
def peers() -> dict[str, Peer]:
    """Every client, by name."""
    return {name: build() for name, build in PEERS.items()}


@pytest.fixture(scope="session", params=["java", "franz-go"])
def admin_peer(request: pytest.FixtureRequest) -> CommandPeer:
    """Each client whose driver has admin calls."""
    builders: dict[str, Callable[[], CommandPeer]] = {"java": java_peer, "franz-go": franz_go_peer}
    return builders[request.param]()
