"""The last member of the newer protocol leaves a group: the classic members go on as a classic group."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from tidelog.wire.codec import to_bytes
from tidelog.wire.stored.classic_groups import GroupMetadataValue, MemberMetadata
from tidelog.wire.stored.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.coordinators.groups.consumer_member import ClassicPart, ConsumerMember, Partitions
    from tidelog.coordinators.groups.consumer_records import TopicFacts

_VERSION = struct.Struct(">h")


def downgraded(group: ConsumerGroup, staying: Collection[ConsumerMember], now_ms: int) -> GroupMetadataValue:
    """The record of the classic group. All of `staying` are classic members.

    It has no leader, which is how a group looks that must rebalance: nobody has divided what the others left behind.
    """
    protocol = common_protocol([part for member in staying if (part := member.profile.classic) is not None])
    assert protocol is not None, "members that have no protocol in common are not let in together"
    members = []
    for member in staying:
        profile, part = member.profile, member.profile.classic
        assert part is not None, "only classic members go on as a classic group"
        members.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=profile.instance_id,
                client_id=profile.client_id,
                client_host=profile.client_host,
                rebalance_timeout=profile.rebalance_timeout_ms,
                session_timeout=part.session_timeout_ms,
                subscription=dict(part.protocols)[protocol],
                assignment=assignment_bytes(member.position.assigned, group.topics, part),
            )
        )
    return GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=None,
        current_state_timestamp=now_ms,
        members=members,
    )


def common_protocol(parts: Collection[ClassicPart]) -> str | None:
    """Each member votes for its favourite among the protocols that all support."""
    supporters = Counter(name for part in parts for name, _metadata in part.protocols)
    votes: Counter[str] = Counter()
    for part in parts:
        favourites = (name for name, _metadata in part.protocols if supporters[name] == len(parts))
        votes.update(name for name in [next(favourites, None)] if name is not None)
    return max(votes, key=votes.__getitem__, default=None)


def assignment_bytes(partitions: Partitions, topics: Mapping[str, TopicFacts], part: ClassicPart) -> bytes:
    """An assignment as a classic leader would have written it, in the version that the member speaks."""
    _name, metadata = part.protocols[0]
    stated = _VERSION.unpack_from(metadata)[0] if len(metadata) >= _VERSION.size else 0
    version = min(max(stated, 0), ConsumerProtocolAssignment.VERSIONS.last)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopic(topic=name, partitions=sorted(partitions[facts.topic_id]))
            for name, facts in sorted(topics.items())
            if facts.topic_id in partitions
        ],
        user_data=None,
    )
    return _VERSION.pack(version) + to_bytes(assignment, version)
