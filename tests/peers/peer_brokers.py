"""The broker that the peer tests run against: Tidelog's, or Apache Kafka's own.

With `TIDELOG_PEERS_AGAINST=kafka` in the environment the tests run against Apache Kafka: what they demand of Tidelog is
then known to hold of Kafka.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from apache_kafka import KafkaProcess
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.testing import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ADMIN_TIMEOUT_S = 30.0


class Broker(Protocol):
    """What a test needs to know of the process under test."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def data_dir(self) -> Path: ...

    def start(self) -> object: ...

    def stop(self) -> int: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class StartBroker(Protocol):
    def __call__(self, settings: Mapping[str, str] = ...) -> Broker:
        """A started broker with empty directories."""


class CreateTopic(Protocol):
    def __call__(self, name: str, partitions: int = 1, config: Mapping[str, str] = ...) -> str:
        """Creates the topic and gives its name back."""


def start_broker(data_dir: Path, settings: Mapping[str, str]) -> Broker:
    if os.environ.get("TIDELOG_PEERS_AGAINST", "tidelog") == "kafka":
        return KafkaProcess(data_dir, settings).start()
    return BrokerProcess(data_dir, settings).start()


def create_on(broker: Broker, name: str, partitions: int = 1, config: Mapping[str, str] = {}) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config))
    admin.create_topics([wanted], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)
    return name
