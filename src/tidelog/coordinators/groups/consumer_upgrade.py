"""The first member of the newer protocol joins a classic group: the group goes on as one of the newer protocol.

Its members stay what they are, and keep what the last division gave them. They go on by the classic requests, see
`consumer_classic_requests`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.assign import CLASSIC
from tidelog.coordinators.groups.consumer_member import (
    ClassicPart,
    MemberState,
    Partitions,
    Position,
    Profile,
    Subscription,
)
from tidelog.coordinators.groups.consumer_records import (
    TopicFacts,
    epoch_record,
    position_record,
    profile_record,
    target_epoch_record,
    target_record,
    topics_record,
)
from tidelog.coordinators.groups.subscriptions import read_subscription
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.codec import decode
from tidelog.wire.errors import WireError
from tidelog.wire.stored.consumer_protocol import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.coordinators.decision import StoredRecord
    from tidelog.coordinators.groups.classic_group import ClassicGroup, ClassicMember
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.topics import ClusterTopics
    from tidelog.wire.stored.consumer_protocol import ConsumerProtocolSubscription

_VERSION = struct.Struct(">h")


def check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    """Raises BrokerError GROUP_ID_NOT_FOUND: there is no such group that speaks the newer protocol, nor can be."""
    if config.consumer_migration_policy not in {"bidirectional", "upgrade"}:
        raise _cannot(group, "group.consumer.migration.policy does not allow it")
    if not group.uses_consumer_protocol:
        raise _cannot(group, "its members are not consumers")
    if len(group.members) > config.consumer_max_size:
        raise _cannot(group, "it has more members than group.consumer.max.size")


def upgraded(group: ClassicGroup, topics: ClusterTopics) -> list[StoredRecord]:
    """The records of the group as one of the newer protocol. Raises BrokerError GROUP_ID_NOT_FOUND."""
    epoch = max(group.generation, 1)
    subscriptions = {member_id: _subscription(group, member) for member_id, member in group.members.items()}
    claimed: set[tuple[bytes, int]] = set()
    # The leader of the group divided as it liked: where it gave a partition twice, the first member has it.
    assigned = {
        member_id: _unclaimed(_assigned(group, member, topics.topic_id), claimed)
        for member_id, member in group.members.items()
    }
    # Cooperative members give up in one round what others get in the next: what a member had when it joined, and what
    # nobody has been given since, it may still be reading.
    revoking = {
        member_id: _unclaimed(owned_partitions(subscription, topics), claimed)
        for member_id, subscription in subscriptions.items()
    }
    facts: dict[str, TopicFacts] = {}
    profiles, targets, positions = [], [], []
    for member_id, member in group.members.items():
        profile = _profile(member, subscriptions[member_id])
        facts.update(_facts(profile.subscription.topics, topics))
        state = MemberState.UNREVOKED_PARTITIONS if revoking[member_id] else MemberState.STABLE
        position = Position(epoch, epoch, state, assigned[member_id], revoking[member_id])
        profiles.append(profile_record(group.group_id, member_id, profile))
        targets.append(target_record(group.group_id, member_id, assigned[member_id]))
        positions.append(position_record(group.group_id, member_id, position))
    return [
        *profiles,
        topics_record(group.group_id, facts),
        epoch_record(group.group_id, epoch),
        *targets,
        target_epoch_record(group.group_id, epoch),
        *positions,
    ]


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: ClusterTopics) -> Partitions:
    """What a member said it has when it joined. Members that know no better give up everything before they join."""
    owned: Partitions = {}
    for topic in subscription.owned_partitions:
        topic_id = topics.topic_id(topic.topic)
        if topic_id is not None and topic.partitions:
            owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _subscription(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    protocol = group.protocol if group.protocol in member.protocols else next(iter(member.protocols))
    subscription = read_subscription(member.protocols[protocol])
    if subscription is None:
        raise _cannot(group, f"the subscription of its member {member.member_id} cannot be read")
    return subscription


def _profile(member: ClassicMember, subscription: ConsumerProtocolSubscription) -> Profile:
    return Profile(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscription=Subscription(frozenset(subscription.topics), ""),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicPart(member.session_timeout_ms, tuple(member.protocols.items())),
    )


def _assigned(group: ClassicGroup, member: ClassicMember, topic_id_of: Callable[[str], bytes | None]) -> Partitions:
    if not member.assignment:
        return {}
    try:
        (version,) = _VERSION.unpack_from(member.assignment)
        version = min(version, ConsumerProtocolAssignment.VERSIONS.last)
        assignment = decode(ConsumerProtocolAssignment, member.assignment, version, _VERSION.size)
    except (WireError, struct.error) as error:
        raise _cannot(group, f"the assignment of its member {member.member_id} cannot be read") from error
    # The known assignors need no more than what is stored anyway, though librdkafka's sticky ones send it along.
    if assignment.user_data and group.protocol not in CLASSIC:
        raise _cannot(group, f"its assignor {group.protocol} sends data of its own, which would be lost")
    partitions: Partitions = {}
    for topic in assignment.assigned_partitions:
        topic_id = topic_id_of(topic.topic)
        if topic_id is not None:
            partitions[topic_id] = partitions.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return partitions


def _unclaimed(partitions: Partitions, claimed: set[tuple[bytes, int]]) -> Partitions:
    """What is not claimed yet, which now is."""
    mine: Partitions = {}
    for topic_id, numbers in partitions.items():
        free = frozenset(number for number in numbers if (topic_id, number) not in claimed)
        if free:
            mine[topic_id] = free
            claimed.update((topic_id, number) for number in free)
    return mine


def _facts(names: Iterable[str], topics: ClusterTopics) -> dict[str, TopicFacts]:
    found: dict[str, TopicFacts] = {}
    for name in names:
        topic_id, partitions = topics.topic_id(name), topics.partitions(name)
        if topic_id is not None and partitions is not None:
            found[name] = TopicFacts(topic_id, partitions)
    return found


def _cannot(group: ClassicGroup, why: str) -> BrokerError:
    return BrokerError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Classic group {group.group_id} cannot become one of the newer protocol: {why}."
    )
