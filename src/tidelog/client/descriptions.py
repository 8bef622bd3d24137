"""What Admin takes and gives: plain values, and how they are read from the broker's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.errors import error_code
from tidelog.client.metadata import Node, PartitionMetadata, TopicMetadata
from tidelog.types import BrokerId, TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.client.metadata import ClusterMetadata
    from tidelog.errors import ErrorCode
    from tidelog.wire.messages.describe_cluster import DescribeClusterResponse
    from tidelog.wire.messages.describe_configs import DescribeConfigsResourceResult
    from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsResult


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each partition, the preferred leader first; instead of the two counts."""


class CreatedTopic(NamedTuple):
    name: str
    topic_id: TopicId
    partitions: int
    replication_factor: int


class TopicDescription(NamedTuple):
    name: str
    topic_id: TopicId
    internal: bool
    partitions: tuple[PartitionMetadata, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition.index) for partition in self.partitions]


class ConfigType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: ConfigType
    name: str

    @classmethod
    def of_topic(cls, name: str) -> ConfigResource:
        return cls(ConfigType.TOPIC, name)

    @classmethod
    def of_broker(cls, broker: int | None = None) -> ConfigResource:
        """One broker's settings, or (None) the defaults of the whole cluster."""
        return cls(ConfigType.BROKER, "" if broker is None else str(broker))

    @classmethod
    def of_group(cls, group_id: str) -> ConfigResource:
        return cls(ConfigType.GROUP, group_id)

    @property
    def broker(self) -> BrokerId | None:
        """The broker that has to be asked, if it matters."""
        of_broker = self.type in {ConfigType.BROKER, ConfigType.BROKER_LOGGER}
        return BrokerId(int(self.name)) if of_broker and self.name else None

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}".rstrip()


class ConfigSource(IntEnum):
    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None when it is not set, or is a secret."""
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[Node, ...]


class LogDir(NamedTuple):
    broker: BrokerId
    path: str
    error: ErrorCode
    total_bytes: int
    """-1 when the broker does not say."""
    usable_bytes: int
    partition_bytes: Mapping[TopicPartition, int]


def topic(found: TopicMetadata) -> TopicDescription:
    return TopicDescription(found.name, found.topic_id, found.internal, found.partitions)


def config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    known = entry.config_source in ConfigSource._value2member_map_
    return ConfigEntry(
        entry.name,
        entry.value,
        ConfigSource(entry.config_source) if known else ConfigSource.UNKNOWN,
        entry.read_only,
        entry.is_sensitive,
        entry.documentation or "",
    )


def cluster(reply: DescribeClusterResponse) -> ClusterDescription:
    brokers = (Node(BrokerId(broker.broker_id), broker.host, broker.port, broker.rack) for broker in reply.brokers)
    return ClusterDescription(
        reply.cluster_id, BrokerId(reply.controller_id), tuple(sorted(brokers, key=lambda node: node.id))
    )


def cluster_by_metadata(metadata: ClusterMetadata) -> ClusterDescription:
    brokers = tuple(sorted(metadata.nodes.values(), key=lambda node: node.id))
    return ClusterDescription(metadata.cluster_id or "", metadata.controller_id, brokers)


def log_dir(broker: BrokerId, result: DescribeLogDirsResult) -> LogDir:
    sizes = {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }
    return LogDir(broker, result.log_dir, error_code(result.error_code), result.total_bytes, result.usable_bytes, sizes)
