"""What brokers say of groups, in every version and both protocols, as one kind of value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tidelog.client.errors import check
from tidelog.client.groups.subscriptions import PROTOCOL_TYPE, by_topic, read_assignment
from tidelog.client.offsets import OffsetAndMetadata
from tidelog.types import Offset, TopicPartition
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.types import BrokerId
    from tidelog.wire.messages import consumer_group_describe, describe_groups
    from tidelog.wire.messages.offset_fetch import (
        OffsetFetchResponse,
        OffsetFetchResponsePartition,
        OffsetFetchResponsePartitions,
    )

_SEVERAL_GROUPS_SINCE = 8
_STABLE_SINCE = 7


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    """Of a static member."""
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    """What it reads now."""
    target_assignment: frozenset[TopicPartition] | None = None
    """What it is to read once the others have let go of it; None in classic groups."""
    epoch: int | None = None
    """None in classic groups."""
    rack: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: Literal["classic", "consumer"]
    """Which protocol it uses."""
    state: str
    assignor: str
    """Who divides the partitions; empty while nobody has."""
    protocol_type: str
    coordinator: BrokerId
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    """None in classic groups."""
    assignment_epoch: int | None = None


def described_classic(group: describe_groups.DescribedGroup, coordinator: BrokerId) -> GroupDescription:
    reads_topics = group.protocol_type in {PROTOCOL_TYPE, ""}
    members = (
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            (read_assignment(bytes(each.member_assignment)) or frozenset()) if reads_topics else frozenset(),
        )
        for each in group.members
    )
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_data,
        group.protocol_type,
        coordinator,
        tuple(sorted(members, key=lambda member: member.member_id)),
    )


def described_consumer(group: consumer_group_describe.DescribedGroup, coordinator: BrokerId) -> GroupDescription:
    members = (
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _assigned(each.assignment),
            _assigned(each.target_assignment),
            each.member_epoch,
            each.rack_id,
            tuple(each.subscribed_topic_names),
            each.subscribed_topic_regex or None,
        )
        for each in group.members
    )
    return GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        group.assignor_name,
        PROTOCOL_TYPE,
        coordinator,
        tuple(sorted(members, key=lambda member: member.member_id)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _assigned(assignment: consumer_group_describe.Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


def committed_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, version: int, *, stable: bool
) -> OffsetFetchRequest:
    """None: whatever the group has committed."""
    topics = None if partitions is None else by_topic(partitions)
    stable = stable and version >= _STABLE_SINCE
    if version >= _SEVERAL_GROUPS_SINCE:
        named = None
        if topics is not None:
            named = [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=named)
        return OffsetFetchRequest(groups=[group], require_stable=stable)
    listed = None
    if topics is not None:
        listed = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()]
    return OffsetFetchRequest(group_id=group_id, topics=listed, require_stable=stable)


def committed_offsets(reply: OffsetFetchResponse, about: str) -> dict[TopicPartition, OffsetAndMetadata]:
    for code in (reply.error_code, *(group.error_code for group in reply.groups)):
        check(code, about=about)
    answers: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]] = []
    answers += [(topic.name, answer) for topic in reply.topics for answer in topic.partitions]
    answers += [(topic.name, answer) for group in reply.groups for topic in group.topics for answer in topic.partitions]
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for name, answer in answers:
        partition = TopicPartition(name, answer.partition_index)
        check(answer.error_code, about=f"{about}: partition {partition}")
        if answer.committed_offset >= 0:
            found[partition] = OffsetAndMetadata(
                Offset(answer.committed_offset), answer.metadata or "", answer.committed_leader_epoch
            )
    return found
