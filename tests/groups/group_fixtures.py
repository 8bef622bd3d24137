"""Fixtures of the group tests: brokers with short sessions, groups on topics of their own.

With `TIDELOG_PEERS_AGAINST=kafka` in the environment the tests run against Apache Kafka: what they demand of Tidelog is
then known to hold of Kafka.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Protocol

import pytest
from group_topics import create_topic
from members import Group
from streams import Stream

from tidelog.testing import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Members of the newer protocol take their times from the broker.
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "5",
}


class GroupBroker(Protocol):
    """Tidelog's broker or Apache Kafka's; both keep files and port when they start again."""

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> int: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class StartGroupBroker(Protocol):
    def __call__(self, settings: Mapping[str, str] = ...) -> GroupBroker:
        """A started broker with empty directories."""


class MakeGroup(Protocol):
    def __call__(self, partitions: int = ..., topics: int = ..., broker: GroupBroker | None = ...) -> Group:
        """A group without members yet, on new topics with so many partitions each."""


def start_group_broker(data_dir: Path, settings: Mapping[str, str]) -> GroupBroker:
    if os.environ.get("TIDELOG_PEERS_AGAINST", "tidelog") == "kafka":
        from apache_kafka import KafkaProcess

        return KafkaProcess(data_dir, settings).start()
    return BrokerProcess(data_dir, settings).start()


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupBroker]:
    """One broker for all group tests of a worker: leave it running, and use topics and groups of your own."""
    broker = start_group_broker(tmp_path_factory.mktemp("group-broker"), SETTINGS)
    yield broker
    broker.close()


@pytest.fixture
def own_group_broker(tmp_path: Path) -> Iterator[StartGroupBroker]:
    """Brokers of the test's own, for tests that stop them."""
    started: list[GroupBroker] = []

    def start(settings: Mapping[str, str] = {}) -> GroupBroker:
        started.append(start_group_broker(tmp_path / f"broker-{len(started)}", {**SETTINGS, **settings}))
        return started[-1]

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def make_group(request: pytest.FixtureRequest) -> Iterator[MakeGroup]:
    made: list[Group] = []

    def make(partitions: int = 4, topics: int = 1, broker: GroupBroker | None = None) -> Group:
        on: GroupBroker = broker or request.getfixturevalue("group_broker")
        unique = uuid.uuid4().hex[:12]
        names = [create_topic(on.bootstrap, f"shared-{unique}-{number}", partitions) for number in range(topics)]
        made.append(Group(on.bootstrap, f"group-{unique}", names, partitions))
        return made[-1]

    yield make
    for group in made:
        group.close()


@pytest.fixture
def stream(group_broker: GroupBroker) -> Stream:
    return Stream(group_broker.bootstrap)
