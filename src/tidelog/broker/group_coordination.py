"""Fits the group coordinator into the broker: its internal topic, its partitions' logs, what it knows of topics."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tidelog.broker.state_log import PartitionStateLog
from tidelog.controller.image import OFFSETS_TOPIC
from tidelog.controller.topic_rules import TopicSpec
from tidelog.coordinators.coordinator import Coordinator
from tidelog.coordinators.decision import Decision, Transaction
from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.stored import RecordFormat
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.compression import codec_of
from tidelog.wire.stored import classic_groups as classic
from tidelog.wire.stored import consumer_groups as consumer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.clock import Clock
    from tidelog.controller.image import ClusterImage
    from tidelog.controller.settings import Settings
    from tidelog.handlers.handler import TopicsOnDemand
    from tidelog.replication.partition import Partition

GROUP_RECORDS = RecordFormat(
    {
        0: (classic.OffsetCommitKey, classic.OffsetCommitValue),
        1: (classic.OffsetCommitKey, classic.OffsetCommitValue),
        2: (classic.GroupMetadataKey, classic.GroupMetadataValue),
        3: (consumer.ConsumerGroupMetadataKey, consumer.ConsumerGroupMetadataValue),
        4: (consumer.ConsumerGroupPartitionMetadataKey, consumer.ConsumerGroupPartitionMetadataValue),
        5: (consumer.ConsumerGroupMemberMetadataKey, consumer.ConsumerGroupMemberMetadataValue),
        6: (consumer.ConsumerGroupTargetAssignmentMetadataKey, consumer.ConsumerGroupTargetAssignmentMetadataValue),
        7: (consumer.ConsumerGroupTargetAssignmentMemberKey, consumer.ConsumerGroupTargetAssignmentMemberValue),
        8: (consumer.ConsumerGroupCurrentMemberAssignmentKey, consumer.ConsumerGroupCurrentMemberAssignmentValue),
    }
)


class ImageTopics:
    """The cluster's image, as groups look at it."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def partitions(self, topic: str) -> int | None:
        found = self._image.topics.get(topic)
        return None if found is None else len(found.partitions)

    def topic_id(self, topic: str) -> bytes | None:
        found = self._image.topics.get(topic)
        return None if found is None else found.topic_id

    def name(self, topic_id: bytes) -> str | None:
        return self._image.names.get(topic_id)  # type: ignore[call-overload, no-any-return] # looked up by its base type

    def names(self) -> Iterable[str]:
        return self._image.topics.keys()

    def racks(self, topic: str, partition: int) -> Iterable[str]:
        replicas = self._image.topics[topic].partitions[partition].replicas
        brokers = (self._image.brokers.get(replica) for replica in replicas)
        return [broker.rack for broker in brokers if broker and broker.rack]


class GroupCoordination:
    def __init__(self, image: ClusterImage, settings: Settings, topics: TopicsOnDemand, clock: Clock) -> None:
        self._image = image
        self._settings = settings
        self._topics = topics
        self.known_topics = ImageTopics(image)
        self.coordinator: Coordinator[GroupShard] = Coordinator(
            OFFSETS_TOPIC, self._make_shard, lambda: self.known_topics.partitions(OFFSETS_TOPIC), clock
        )

    def _make_shard(self) -> GroupShard:
        return GroupShard(GroupConfig.from_broker(self._settings.broker), lambda: secrets.token_urlsafe(16))

    async def ensure_topic(self) -> None:
        """Creates the internal topic when the first group is looked for."""
        if OFFSETS_TOPIC in self._image.topics:
            return
        broker = self._settings.broker
        spec = TopicSpec(
            OFFSETS_TOPIC,
            broker.offsets_topic_num_partitions,
            broker.offsets_topic_replication_factor,
            {},
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(broker.offsets_topic_segment_bytes),
            },
        )
        try:
            await self._topics.create(spec)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def leads(self, partition: Partition) -> None:
        """This broker leads `partition` from now on."""
        codec = codec_of(self._settings.broker.offsets_topic_compression_codec)
        self.coordinator.lead(partition.topic_partition.partition, PartitionStateLog(partition, GROUP_RECORDS, codec))

    def loses(self, partition: Partition) -> None:
        self.coordinator.resign(partition.topic_partition.partition)

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A marker was appended to a partition of the internal topic, in this very step."""
        runtime = self.coordinator.at(partition)
        if runtime is not None:
            runtime.transaction_ended(Transaction(producer_id, producer_epoch), committed=committed)

    def topics_changed(self, deleted: tuple[str, ...]) -> None:
        """Groups that subscribe to what has changed are rebalanced."""

        def decide(shard: GroupShard, now_ms: int) -> Decision:
            return shard.on_topics_changed(self.known_topics, now_ms, deleted)

        for runtime in self.coordinator:
            runtime.perform(decide)
