"""What a broker knows of the cluster: brokers, topics, who leads what. Plain data, read by everyone.

There are two of them: the controller's own, which changes on the event loop after the znode store has taken a change,
and each broker's, which follows what the controller tells. `version` rises with every change, so that what is derived
from the image can be cached.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.types import TopicId, TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

BrokerIds = AbstractSet[int]

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int
    security_protocol: int = 0
    """Kafka's number of it, as UpdateMetadata carries it."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    broker_id: int
    endpoints: Mapping[str, Endpoint]
    """By listener name: a client is told the address of the listener it came in by."""
    rack: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionImage:
    replicas: tuple[int, ...]
    """The preferred leader first. While the partition is being moved: where it goes, then where it leaves."""
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    """Rises whenever the controller chooses a leader, also when it chooses the same one again."""
    partition_epoch: int = 0
    """Rises with every change: the version of the partition's znode."""
    adding: tuple[int, ...] = ()
    """While the partition is being moved: the replicas that are not yet in sync for the first time."""
    removing: tuple[int, ...] = ()
    observers: tuple[int, ...] = ()
    """Replicas that follow without ever being waited for: never in sync, never leader."""
    recovering: bool = False
    """The leader was chosen without being in sync, and has not yet said that its log is in order (KIP-704)."""

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(slots=True)
class TopicImage:
    name: str
    topic_id: TopicId
    partitions: list[PartitionImage]
    settings: dict[str, str] = field(default_factory=dict)
    """What was set for this topic; everything else comes from the broker's settings."""

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(slots=True)
class ClusterImage:
    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    names: dict[TopicId, str] = field(default_factory=dict)
    """Topic names by id: requests of newer versions name topics by id alone."""
    offline: dict[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """Brokers that live but cannot use their replica of a partition, as its disk has failed. Few, mostly none."""
    broker_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """Dynamic settings by broker id in text form; the empty id holds the cluster-wide defaults."""
    version: int = 0

    def put_topic(self, topic: TopicImage) -> None:
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name
        self.version += 1

    def drop_topic(self, name: str) -> TopicImage:
        topic = self.topics.pop(name)
        del self.names[topic.topic_id]
        if self.offline:
            self.offline = {each: brokers for each, brokers in self.offline.items() if each.topic != name}
        self.version += 1
        return topic

    def live(self, topic_partition: TopicPartition) -> BrokerIds:
        """The brokers on which a replica of the partition can be used, if they hold one."""
        failed = self.offline.get(topic_partition)
        return self.brokers.keys() - failed if failed else self.brokers.keys()

    def touch(self) -> None:
        """Says that something inside has changed."""
        self.version += 1

    def topic(self, name: str) -> TopicImage:
        topic = self.topics.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def topic_by_id(self, topic_id: bytes) -> TopicImage:
        name = self.names.get(topic_id)  # type: ignore[call-overload] # a NewType key looked up by its base type
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id: it was deleted, or re-created")
        return self.topics[name]

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def endpoints(self, listener: str) -> list[tuple[int, Endpoint, str | None]]:
        """Id, address and rack of each broker that can be reached by the same listener as the one who asks."""
        return [
            (broker.broker_id, broker.endpoints[listener], broker.rack)
            for broker in self.brokers.values()
            if listener in broker.endpoints
        ]

    def racks(self) -> Sequence[tuple[int, str | None]]:
        return [(broker.broker_id, broker.rack) for broker in self.brokers.values()]
