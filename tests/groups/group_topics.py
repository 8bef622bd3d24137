"""Topics that groups read, made and enlarged."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

ADMIN_TIMEOUT_S = 60.0


def create_topic(bootstrap: str, name: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1)
    admin.create_topics([wanted], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)
    return name


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(ADMIN_TIMEOUT_S)
