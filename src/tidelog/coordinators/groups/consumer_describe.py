"""What administrators are shown of groups of the newer protocol: ConsumerGroupDescribe (v0-1) and ListGroups.

ConsumerGroupDescribe v1 tells which members are classic ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from tidelog.wire.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.coordinators.groups.consumer_member import ConsumerMember, Partitions

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def described(group: ConsumerGroup, assignor: str) -> DescribedGroup:
    names = {facts.topic_id: name for name, facts in group.topics.items()}
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor,
        members=[
            _member(member, group.target.get(member_id, {}), names) for member_id, member in group.members.items()
        ],
    )


def not_found(group_id: str) -> DescribedGroup:
    """Clients then ask if it is a classic group."""
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a group of the consumer protocol.",
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def listed(group: ConsumerGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        group_state=group.state,
        group_type="consumer",
    )


def _member(member: ConsumerMember, target: Partitions, names: Mapping[bytes, str]) -> Member:
    profile = member.profile
    return Member(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=member.position.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.subscription.topics),
        subscribed_topic_regex=profile.subscription.pattern or None,
        assignment=_assignment(member.position.assigned, names),
        target_assignment=_assignment(target, names),
        member_type=CONSUMER_MEMBER if profile.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, names: Mapping[bytes, str]) -> Assignment:
    """Topics that are gone have no name to be shown by."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in sorted(partitions.items())
            if topic_id in names
        ]
    )
