"""What a request of the newer protocol must fulfil before anything is decided. All raise BrokerError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer_member import (
    LEFT_EPOCH,
    LEFT_FOR_A_WHILE_EPOCH,
    NOT_JOINED_EPOCH,
    Partitions,
)
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.coordinators.groups.consumer_member import ConsumerMember
    from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBER_ID_BY_CLIENT_SINCE = 1

ID_LENGTH_MAX = 0x7FFF // 4
"""A string in a key has 16 bits for its length in bytes, and a character takes up to four."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]) -> None:
    epoch = request.member_epoch
    if version >= MEMBER_ID_BY_CLIENT_SINCE or epoch > 0 or epoch == LEFT_EPOCH:
        _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    _refuse_blank(request.instance_id, "InstanceId")
    _refuse_blank(request.rack_id, "RackId")
    check_ids(request.group_id, request.member_id, request.instance_id)
    if epoch == NOT_JOINED_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided when joining.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when joining: give up what you have first.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be provided when joining.")
    elif epoch == LEFT_FOR_A_WHILE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId must be provided by a static member that leaves for a while.")
    elif epoch < LEFT_FOR_A_WHILE_EPOCH:
        raise _invalid(f"MemberEpoch {epoch} means nothing.")
    if request.rebalance_timeout_ms < -1:
        raise _invalid(f"RebalanceTimeoutMs cannot be {request.rebalance_timeout_ms}.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported: use one of {', '.join(assignors)}.",
        )


def check_ids(*ids: str | None) -> None:
    """What is in the keys of records must not be longer than those can hold."""
    if any(len(one) > ID_LENGTH_MAX for one in ids if one is not None):
        raise _invalid(f"Ids of groups and members can have {ID_LENGTH_MAX} characters at most.")


def _refuse_blank(value: str | None, field: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{field} must not be empty.")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


def check_size(group: ConsumerGroup, member_id: str, size_max: int) -> None:
    if len(group.members) >= size_max and member_id not in group.members:
        raise BrokerError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group.group_id} has {size_max} members, and may not have more."
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """A member may be one epoch behind: the reply that told it of the next one may have been lost."""
    position = member.position
    if epoch in {position.epoch, NOT_JOINED_EPOCH}:
        return
    if epoch == position.previous_epoch and owned is not None and _is_within(owned, position.assigned):
        return
    raise BrokerError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"Member {member.member_id} is in epoch {position.epoch}, not {epoch}: it must give up all its partitions and "
        "join again.",
    )


def _is_within(owned: Partitions, assigned: Partitions) -> bool:
    return all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items())


def known_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def known_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The member of that instance, if it has that member id."""
    member = group.static_member(instance_id)
    if member is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"No member of group {group.group_id} has the instance id {instance_id}."
        )
    if member.member_id != member_id:
        raise BrokerError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Member {member_id} with instance id {instance_id} was replaced by member {member.member_id}.",
        )
    return member


def identified_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        return known_member(group, member_id)
    return known_static_member(group, member_id, instance_id)


def check_released(former: ConsumerMember, member_id: str, instance_id: str) -> None:
    """Two members with one instance id would throw each other out in turns: the first must leave before the second."""
    if former.position.epoch != LEFT_FOR_A_WHILE_EPOCH:
        raise BrokerError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Member {member_id} cannot join: instance id {instance_id} is in use by member {former.member_id}.",
        )


def check_member_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    """Whether somebody who says it is this member, in this epoch, may commit or fetch offsets."""
    if epoch == member.position.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.profile.classic is None else ErrorCode.ILLEGAL_GENERATION
