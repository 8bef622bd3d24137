"""A member of a group of the newer protocol: what it asked for, and how far it has come towards its assignment.

    STABLE                 has exactly what the target gives it
    UNREVOKED_PARTITIONS   has been told to give something up, and has not said yet that it did
    UNRELEASED_PARTITIONS  waits for something that others have not given up yet

A member goes from any of these to any other, one step with each heartbeat: see `consumer_reconcile`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.stored.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    class TopicNumbers(Protocol):
        """The shape that partitions have in every message: a topic and the numbers of its partitions."""

        topic_id: bytes
        partitions: list[int]


NOT_JOINED_EPOCH = 0
LEFT_EPOCH = -1
LEFT_FOR_A_WHILE_EPOCH = -2
"""A static member that will be back within its session timeout, and keeps its partitions until then."""

Partitions = dict[bytes, frozenset[int]]
"""Partitions by topic id. A topic of which there are none is not in it."""


class MemberState(IntEnum):
    """By the numbers that are stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ClassicPart(NamedTuple):
    """What is known of a member that speaks the classic protocol to a group of the newer one."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each assignor that the member supports, the one it likes best first."""


class Subscription(NamedTuple):
    topics: frozenset[str]
    pattern: str
    """A regular expression, which adds the topics it matches; empty if there is none."""


class Profile(NamedTuple):
    """What a member told of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscription: Subscription
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicPart | None


class Position(NamedTuple):
    """How far a member has come. It may read `assigned`; it may still be reading `revoking`."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    revoking: Partitions

    def moved_to(self, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions) -> Position:
        """A member whose epoch does not change keeps its previous one too: it may still be answered late."""
        previous_epoch = self.previous_epoch if epoch == self.epoch else self.epoch
        return Position(epoch, previous_epoch, state, assigned, revoking)

    def is_settled_in(self, epoch: int) -> bool:
        return self.epoch == epoch and self.state is MemberState.STABLE


NO_PROFILE = Profile(None, None, "", "", Subscription(frozenset(), ""), -1, None, None)
NO_POSITION = Position(NOT_JOINED_EPOCH, NOT_JOINED_EPOCH, MemberState.STABLE, {}, {})


class ConsumerMember:
    __slots__ = ("deadline_ms", "member_id", "position", "profile", "rejoin_by_ms")

    def __init__(self, member_id: str, profile: Profile = NO_PROFILE, position: Position = NO_POSITION) -> None:
        self.member_id = member_id
        self.profile = profile
        self.position = position
        # What follows is not stored: it starts anew when the group is loaded.
        self.deadline_ms = 0
        """When its session ends. The timer that is set may be for an earlier time, and looks here when it rings."""
        self.rejoin_by_ms: int | None = None
        """Until when a classic member that was told of a rebalance has to join again."""

    def session_timeout_ms(self, default_ms: int) -> int:
        classic = self.profile.classic
        return default_ms if classic is None else classic.session_timeout_ms


def partitions_of(topics: Iterable[TopicNumbers]) -> Partitions:
    """Reads what any message says. A topic that is named twice counts once."""
    found: Partitions = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def topic_partitions(partitions: Mapping[bytes, frozenset[int]]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions.items())
    ]


def profile_from(value: ConsumerGroupMemberMetadataValue) -> Profile:
    classic = value.classic_member_metadata
    # An empty structure is how the format says that there is none; a classic member supports something.
    part = None
    if classic is not None and classic.supported_protocols:
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols)
        part = ClassicPart(classic.session_timeout_ms, protocols)
    return Profile(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscription=Subscription(frozenset(value.subscribed_topic_names), value.subscribed_topic_regex or ""),
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=part,
    )


def profile_value(profile: Profile) -> ConsumerGroupMemberMetadataValue:
    classic = profile.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.subscription.topics),
        subscribed_topic_regex=profile.subscription.pattern or None,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )


def position_from(value: ConsumerGroupCurrentMemberAssignmentValue) -> Position:
    known = value.state in MemberState.__members__.values()
    return Position(
        value.member_epoch,
        value.previous_member_epoch,
        # A state that a newer release has invented: the member has to say what it has before it gets more.
        MemberState(value.state) if known else MemberState.UNREVOKED_PARTITIONS,
        partitions_of(value.assigned_partitions),
        partitions_of(value.partitions_pending_revocation),
    )


def position_value(position: Position) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=position.epoch,
        previous_member_epoch=position.previous_epoch,
        state=position.state,
        assigned_partitions=topic_partitions(position.assigned),
        partitions_pending_revocation=topic_partitions(position.revoking),
    )
