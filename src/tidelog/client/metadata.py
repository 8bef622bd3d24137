"""What a client knows of the cluster: brokers, topics, leaders. Plain values, replaced as a whole, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.errors import error_code
from tidelog.errors import ErrorCode
from tidelog.types import ZERO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NO_LEADER = BrokerId(-1)


class Node(NamedTuple):
    id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    index: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]
    error: ErrorCode = ErrorCode.NONE


class TopicMetadata(NamedTuple):
    name: str
    topic_id: TopicId
    internal: bool
    partitions: tuple[PartitionMetadata, ...]
    """Ascending by index."""
    error: ErrorCode = ErrorCode.NONE

    def partition(self, index: int) -> PartitionMetadata | None:
        """By index, which need not be its place in the tuple while a reply leaves partitions out."""
        if index < len(self.partitions) and self.partitions[index].index == index:
            return self.partitions[index]
        return next((partition for partition in self.partitions if partition.index == index), None)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: BrokerId = NO_LEADER
    nodes: Mapping[BrokerId, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)

    def updated(self, reply: MetadataResponse) -> ClusterMetadata:
        """With what `reply` says; topics it does not mention stay as they were."""
        topics = dict(self.topics)
        for topic in reply.topics:
            fresh = _topic(topic)
            known = topics.get(fresh.name)
            topics[fresh.name] = fresh if known is None else _keep_newer_leaders(known, fresh)
        return ClusterMetadata(
            reply.cluster_id,
            BrokerId(reply.controller_id),
            {BrokerId(n.node_id): Node(BrokerId(n.node_id), n.host, n.port, n.rack) for n in reply.brokers},
            topics,
        )

    def without(self, topics: Iterable[str]) -> ClusterMetadata:
        gone = set(topics)
        return replace(self, topics={name: topic for name, topic in self.topics.items() if name not in gone})

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return topic.partition(partition.partition) if topic is not None else None

    def leader_of(self, partition: TopicPartition) -> Node | None:
        """None while nobody leads it, or its leader is not among the live brokers."""
        found = self.partition(partition)
        return self.nodes.get(found.leader) if found is not None else None

    def topic_id(self, topic: str) -> TopicId:
        found = self.topics.get(topic)
        return found.topic_id if found is not None else ZERO_TOPIC_ID


def _topic(topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = sorted((_partition(partition) for partition in topic.partitions), key=lambda p: p.index)
    return TopicMetadata(
        topic.name or "", TopicId(topic.topic_id), topic.is_internal, tuple(partitions), error_code(topic.error_code)
    )


def _partition(partition: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        partition.partition_index,
        BrokerId(partition.leader_id),
        LeaderEpoch(partition.leader_epoch),
        tuple(map(BrokerId, partition.replica_nodes)),
        tuple(map(BrokerId, partition.isr_nodes)),
        tuple(map(BrokerId, partition.offline_replicas)),
        error_code(partition.error_code),
    )


def _keep_newer_leaders(known: TopicMetadata, fresh: TopicMetadata) -> TopicMetadata:
    """A broker that lags behind must not send us back to a leader that was already deposed (KIP-320)."""
    if known.topic_id != fresh.topic_id or fresh.error:
        return fresh
    kept: list[PartitionMetadata] = []
    for partition in fresh.partitions:
        before = known.partition(partition.index)
        newer = before is not None and before.leader_epoch > partition.leader_epoch >= 0
        kept.append(before if newer and before is not None else partition)
    return fresh._replace(partitions=tuple(kept))
