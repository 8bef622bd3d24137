"""What the records of one partition of `__consumer_offsets` say of its groups, for whoever shows them elsewhere.

It is fed with records once they are safe, so it may be behind what the coordinator decides on, and never shows what a
crash could take back. Of a classic group it knows the last generation that was divided: who is on the way in or out
is not stored. Members fill their bytes as they like: what cannot be read is left out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.consumer_member import Subscription
from tidelog.coordinators.groups.consumer_table import ConsumerTable
from tidelog.coordinators.groups.pending_offsets import PendingOffsets, Place
from tidelog.coordinators.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from tidelog.wire.codec import decode
from tidelog.wire.errors import WireError
from tidelog.wire.stored.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.wire.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tidelog.wire.stored.consumer_protocol import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.coordinators.decision import Transaction
    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.wire.declare import Message

Slot = tuple[str, int]
"""A partition, by its topic's name and its number."""

_VERSION = struct.Struct(">h")

_CONSUMER_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
)


class Member(NamedTuple):
    topics: frozenset[str]
    pattern: str
    """A regular expression, which adds the topics it matches; empty if there is none."""
    since_ms: int
    """When it was first seen here, by whoever looks."""


class GroupView(NamedTuple):
    group_id: str
    members: Mapping[str, Member]
    owners: Mapping[Slot, str]
    """The member that may be reading each partition."""
    offsets: Mapping[Slot, int]


class Touch(NamedTuple):
    """What a record has changed: one committed offset of a group, or who knows what."""

    group_id: str
    slot: Slot | None


class GroupBook:
    def __init__(self) -> None:
        self._classic: dict[str, GroupMetadataValue] = {}
        self._consumer = ConsumerTable(GroupConfig())
        self._offsets: dict[str, dict[Slot, int]] = {}
        self._pending: PendingOffsets[OffsetCommitValue | None] = PendingOffsets()
        """Offsets in open transactions, which nobody is shown."""
        self._since_ms: dict[str, dict[str, int]] = {}
        self._names: dict[str, dict[bytes, str]] = {}
        """Topics of groups of the newer protocol, whose records have names only for what is subscribed to now."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._classic or group_id in self._consumer.groups or group_id in self._offsets

    def __iter__(self) -> Iterator[str]:
        return iter({**self._classic, **self._consumer.groups, **self._offsets})

    def offset(self, group_id: str, slot: Slot) -> int | None:
        return self._offsets.get(group_id, {}).get(slot)

    def view(self, group_id: str, now_ms: int) -> GroupView | None:
        """None if there is no such group. Members that were in no earlier view are here since now."""
        if group_id not in self:
            self._since_ms.pop(group_id, None)
            return None
        subscriptions: dict[str, Subscription] = {}
        owners: dict[Slot, str] = {}
        if group_id in self._consumer.groups:
            self._look_at_consumer(self._consumer.groups[group_id], subscriptions, owners)
        elif group_id in self._classic:
            _look_at_classic(self._classic[group_id], subscriptions, owners)
        known = self._since_ms.get(group_id, {})
        since_ms = self._since_ms[group_id] = {member_id: known.get(member_id, now_ms) for member_id in subscriptions}
        members = {member_id: Member(*wish, since_ms[member_id]) for member_id, wish in subscriptions.items()}
        return GroupView(group_id, members, owners, dict(self._offsets.get(group_id, {})))

    def _look_at_consumer(
        self, group: ConsumerGroup, subscriptions: dict[str, Subscription], owners: dict[Slot, str]
    ) -> None:
        names = self._names.get(group.group_id, {})
        for member_id, member in group.members.items():
            subscriptions[member_id] = member.profile.subscription
            for held in (member.position.assigned, member.position.revoking):
                for topic_id, numbers in held.items():
                    if topic_id in names:
                        owners.update(dict.fromkeys(((names[topic_id], number) for number in numbers), member_id))

    # --- what is stored ---

    def apply(self, key: Message, value: Message | None) -> Touch | None:
        """Takes in one record. None if it is none of a group."""
        match key, value:
            case OffsetCommitKey(), OffsetCommitValue() | None:
                place = Place(key.group, key.topic, key.partition)
                self._pending.overtake(place)
                return self._put(place, value)
            case GroupMetadataKey(), GroupMetadataValue() | None:
                if value is None:
                    self._classic.pop(key.group, None)
                else:
                    self._classic[key.group] = value
                return Touch(key.group, None)
        if not isinstance(key, _CONSUMER_KEYS) or not self._consumer.apply(key, value):
            return None
        if key.group_id not in self._consumer.groups:
            self._names.pop(key.group_id, None)
        elif isinstance(key, ConsumerGroupPartitionMetadataKey):
            self._name_topics(self._consumer.groups[key.group_id])
        return Touch(key.group_id, None)

    def apply_in_transaction(self, transaction: Transaction, key: Message, value: Message | None) -> None:
        match key, value:
            case OffsetCommitKey(), OffsetCommitValue() | None:
                self._pending.hold(transaction.producer_id, Place(key.group, key.topic, key.partition), value)

    def end_transaction(self, transaction: Transaction, *, committed: bool) -> list[Touch]:
        ended = self._pending.end(transaction.producer_id, committed=committed)
        return [self._put(place, value) for place, value in ended]

    def _put(self, place: Place, value: OffsetCommitValue | None) -> Touch:
        slot = (place.topic, place.partition)
        if value is not None:
            is_new = place.group not in self
            self._offsets.setdefault(place.group, {})[slot] = value.offset
            return Touch(place.group, None if is_new else slot)
        offsets = self._offsets.get(place.group, {})
        offsets.pop(slot, None)
        if not offsets:
            self._offsets.pop(place.group, None)
        return Touch(place.group, None)

    def _name_topics(self, group: ConsumerGroup) -> None:
        """A topic that is no longer subscribed to keeps its name while somebody still reads it."""
        positions = [member.position for member in group.members.values()]
        held = {topic_id for position in positions for topic_id in (*position.assigned, *position.revoking)}
        names = {topic_id: name for topic_id, name in self._names.get(group.group_id, {}).items() if topic_id in held}
        names.update({facts.topic_id: name for name, facts in group.topics.items()})
        self._names[group.group_id] = names


def _look_at_classic(
    value: GroupMetadataValue, subscriptions: dict[str, Subscription], owners: dict[Slot, str]
) -> None:
    consumers = value.protocol_type == CONSUMER_PROTOCOL_TYPE
    for member in value.members:
        topics = subscribed_topics(bytes(member.subscription)) if consumers else None
        subscriptions[member.member_id] = Subscription(topics or frozenset(), "")
        for slot in _assigned(bytes(member.assignment)) if consumers else ():
            owners.setdefault(slot, member.member_id)


def _assigned(assignment: bytes) -> list[Slot]:
    if len(assignment) < _VERSION.size:
        return []
    (version,) = _VERSION.unpack_from(assignment)
    if version < 0:
        return []
    version = min(version, ConsumerProtocolAssignment.VERSIONS.last)
    try:
        read = decode(ConsumerProtocolAssignment, assignment, version, _VERSION.size)
    except WireError:
        return []
    return [(topic.topic, number) for topic in read.assigned_partitions for number in topic.partitions]
