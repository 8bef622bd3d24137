"""The records that a group of the newer protocol consists of, and those that remove it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.decision import StoredRecord
from tidelog.coordinators.groups.consumer_member import Partitions, Position, Profile, position_value, profile_value
from tidelog.wire.codec import to_bytes
from tidelog.wire.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicMetadata,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidelog.wire.declare import Message


class TopicFacts(NamedTuple):
    """What the group has seen of a topic it subscribes to. When it changes, partitions are divided anew."""

    topic_id: bytes
    partitions: int


RECORD_OVERHEAD_BYTES = 32
"""What a record takes in a batch beside its key and value, generously."""


def stored_bytes(records: Iterable[StoredRecord]) -> int:
    """How long a batch of these will be, and rather too long than too short."""
    total = 0
    for record in records:
        total += RECORD_OVERHEAD_BYTES + len(to_bytes(record.key, record.key_version))
        if record.value is not None:
            total += len(to_bytes(record.value, record.value_version))
    return total


def _record(key: Message, value: Message | None) -> StoredRecord:
    return StoredRecord(key, key.VERSIONS.last, value, 0)


def epoch_record(group_id: str, epoch: int) -> StoredRecord:
    return _record(ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch))


def topics_record(group_id: str, topics: Mapping[str, TopicFacts]) -> StoredRecord:
    value = ConsumerGroupPartitionMetadataValue(
        topics=[
            TopicMetadata(
                topic_id=facts.topic_id, topic_name=name, num_partitions=facts.partitions, partition_metadata=[]
            )
            for name, facts in sorted(topics.items())
        ]
    )
    return _record(ConsumerGroupPartitionMetadataKey(group_id=group_id), value)


def profile_record(group_id: str, member_id: str, profile: Profile) -> StoredRecord:
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return _record(key, profile_value(profile))


def target_epoch_record(group_id: str, epoch: int) -> StoredRecord:
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return _record(key, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))


def target_record(group_id: str, member_id: str, target: Partitions) -> StoredRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in sorted(target.items())
        ]
    )
    return _record(key, value)


def position_record(group_id: str, member_id: str, position: Position) -> StoredRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return _record(key, position_value(position))


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """In this order, so that whoever reads half of them still sees a whole member without partitions."""
    return [
        _record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        _record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        _record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Collection[str]) -> list[StoredRecord]:
    records = [record for member_id in sorted(member_ids) for record in member_tombstones(group_id, member_id)]
    return [
        *records,
        _record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        _record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None),
        _record(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
