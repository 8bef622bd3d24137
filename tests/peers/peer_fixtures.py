"""Fixtures of the peer tests: the foreign clients, and a broker for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from drivers import CommandPeer, ConfluentPeer, Peer, franz_go_peer, java_peer, kafkajs_peer
from peer_brokers import Broker, CreateTopic, StartBroker, create_on, start_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

PEERS: dict[str, Callable[[], Peer]] = {
    "java": java_peer,
    "franz-go": franz_go_peer,
    "kafkajs": kafkajs_peer,
    "confluent": ConfluentPeer,
}
PEERS_WITH_ADMIN: dict[str, Callable[[], CommandPeer]] = {"java": java_peer, "franz-go": franz_go_peer}


@pytest.fixture(scope="session")
def peers() -> dict[str, Peer]:
    """Every client, by name."""
    return {name: build() for name, build in PEERS.items()}


@pytest.fixture(scope="session", params=PEERS_WITH_ADMIN)
def admin_peer(request: pytest.FixtureRequest) -> CommandPeer:
    """Each client whose driver has admin calls."""
    return PEERS_WITH_ADMIN[request.param]()


@pytest.fixture(scope="session")
def peer_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all peer tests of a worker: leave it running, and use topics of your own."""
    broker = start_broker(tmp_path_factory.mktemp("peer-broker"), {})
    yield broker
    broker.close()


@pytest.fixture
def create_topic(peer_broker: Broker) -> CreateTopic:
    def create(name: str, partitions: int = 1, config: Mapping[str, str] = {}) -> str:
        return create_on(peer_broker, name, partitions, config)

    return create


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Brokers of the test's own, for tests that stop them or look into their files."""
    started: list[Broker] = []

    def start(settings: Mapping[str, str] = {}) -> Broker:
        started.append(start_broker(tmp_path / f"broker-{len(started)}", settings))
        return started[-1]

    yield start
    for broker in started:
        broker.close()
