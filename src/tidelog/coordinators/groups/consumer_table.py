"""All groups of the newer protocol of one shard: what their records say, and what any request may do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.assign import SERVER_SIDE
from tidelog.coordinators.decision import Decision
from tidelog.coordinators.groups.consumer_downgrade import common_protocol, downgraded
from tidelog.coordinators.groups.consumer_group import ConsumerGroup
from tidelog.coordinators.groups.consumer_member import MemberState, partitions_of, position_from, profile_from
from tidelog.coordinators.groups.consumer_records import (
    TopicFacts,
    epoch_record,
    group_tombstones,
    member_tombstones,
    stored_bytes,
    topics_record,
)
from tidelog.coordinators.groups.consumer_target import topic_facts, topic_names
from tidelog.coordinators.groups.consumer_timers import cancel_all, downgraded_key, revoke_key, session_key
from tidelog.coordinators.groups.consumer_turn import Turn
from tidelog.coordinators.groups.rebalance import GROUP_VALUE_VERSION
from tidelog.coordinators.groups.regex import TopicPatterns
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.stored.classic_groups import GroupMetadataKey
from tidelog.wire.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tidelog.coordinators.decision import StoredRecord
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.consumer_member import ClassicPart, ConsumerMember
    from tidelog.coordinators.groups.topics import ClusterTopics
    from tidelog.wire.declare import Message


class ConsumerTable:
    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.assignors = tuple(name for name in config.consumer_assignors if name in SERVER_SIDE) or tuple(SERVER_SIDE)
        """The one to use if members do not ask for another comes first."""
        self.groups: dict[str, ConsumerGroup] = {}
        self.patterns = TopicPatterns()

    # --- what requests and timers do ---

    def turn(self, group: ConsumerGroup, topics: ClusterTopics, now_ms: int, out: Decision) -> Turn:
        return Turn(group, topics, self.patterns, self.assignors, now_ms, out)

    def begin_session(self, group_id: str, member_id: str, timeout_ms: int, now_ms: int, out: Decision) -> None:
        """Sets the timer of a member that is new; those that are known only move their deadline."""
        out.arm(session_key(group_id, member_id), now_ms + timeout_ms)

    def touch(self, member: ConsumerMember, now_ms: int) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms(self.config.consumer_session_timeout_ms)

    def fence(self, group: ConsumerGroup, leaving: Collection[ConsumerMember], now_ms: int, out: Decision) -> None:
        """Takes members out of the group. Classic members that are left alone become a classic group again."""
        if not leaving:
            return
        gone = {member.member_id for member in leaving}
        if self.becomes_classic(group, gone):
            staying = [member for member in group.members.values() if member.member_id not in gone]
            draft = Decision()
            self.downgrade(group, staying, now_ms, draft)
            if stored_bytes(draft.records) <= self.config.record_bytes_max:
                out.records += draft.records
                out.timers += draft.timers
                return
        for member_id in gone:
            out.records += member_tombstones(group.group_id, member_id)
            cancel_all(group.group_id, member_id, out)
        topics = self._topics_without(group, gone)
        if topics != group.topics:
            out.records.append(topics_record(group.group_id, topics))
        out.records.append(epoch_record(group.group_id, group.epoch + 1))

    def becomes_classic(self, group: ConsumerGroup, gone: Collection[str], joining: ClassicPart | None = None) -> bool:
        """Whether only classic members would be left, and may go on as a classic group."""
        if not group.classic_members and joining is None:
            return False
        if self.config.consumer_migration_policy not in {"bidirectional", "downgrade"}:
            return False
        staying = [member.profile.classic for member_id, member in group.members.items() if member_id not in gone]
        if joining is not None:
            staying.append(joining)
        parts = [part for part in staying if part is not None]
        return 0 < len(parts) == len(staying) <= self.config.max_size and common_protocol(parts) is not None

    def downgrade(self, group: ConsumerGroup, staying: Collection[ConsumerMember], now_ms: int, out: Decision) -> None:
        """The group's records give way to one of a classic group, which is told by a timer that it must rebalance."""
        out.records += group_tombstones(group.group_id, group.members)
        value = downgraded(group, staying, now_ms)
        out.record(GroupMetadataKey(group=group.group_id), value, GROUP_VALUE_VERSION)
        for member_id in group.members:
            cancel_all(group.group_id, member_id, out)
        out.arm(downgraded_key(group.group_id), now_ms)

    def _topics_without(self, group: ConsumerGroup, gone: Collection[str]) -> dict[str, TopicFacts]:
        subscriptions = {
            member.profile.subscription for member_id, member in group.members.items() if member_id not in gone
        }
        if not self.patterns.informed and any(subscription.pattern for subscription in subscriptions):
            return group.topics  # too many is not wrong: the epoch grows anyway, and the next change puts it right
        names = {name for subscription in subscriptions for name in topic_names(subscription, self.patterns)}
        return {name: facts for name, facts in group.topics.items() if name in names}

    def refreshed(self, group: ConsumerGroup, topics: ClusterTopics) -> list[StoredRecord]:
        """What to store if a change of the cluster's topics concerns the group: its partitions are divided anew."""
        facts = topic_facts(group.subscriptions, topics, self.patterns)
        if facts == group.topics:
            return []
        return [topics_record(group.group_id, facts), epoch_record(group.group_id, group.epoch + 1)]

    def arm(self, group: ConsumerGroup, now_ms: int, out: Decision) -> None:
        """After loading: everybody gets a whole session, and whoever is to let go of something as long as ever."""
        for member_id, member in group.members.items():
            self.touch(member, now_ms)
            out.arm(session_key(group.group_id, member_id), member.deadline_ms)
            if member.profile.classic is None and member.position.state is MemberState.UNREVOKED_PARTITIONS:
                out.arm(revoke_key(group.group_id, member_id), now_ms + member.profile.rebalance_timeout_ms)

    def check_fits(self, records: Iterable[StoredRecord]) -> None:
        """An append that fails would cost all groups of the shard a reload: what is too large is refused before."""
        total = stored_bytes(records)
        if total > self.config.record_bytes_max:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"The group would take {total} bytes to store: {self.config.record_bytes_max} is the most. "
                "Subscribe to fewer topics, or by a pattern, or raise message.max.bytes.",
            )

    # --- what is stored ---

    def apply(self, key: Message, value: Message | None) -> bool:
        """Takes in one record. False if it is of another kind."""
        match key, value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
                self._group(key.group_id).epoch = value.epoch
            case ConsumerGroupMetadataKey(), None:
                self.groups.pop(key.group_id, None)
            case ConsumerGroupPartitionMetadataKey(), ConsumerGroupPartitionMetadataValue() | None:
                self._apply_topics(key, value)
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
                self._group(key.group_id).set_profile(key.member_id, profile_from(value))
            case ConsumerGroupMemberMetadataKey(), None:
                if key.group_id in self.groups:
                    self.groups[key.group_id].remove_member(key.member_id)
            case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
                self._group(key.group_id).target_epoch = value.assignment_epoch
            case ConsumerGroupTargetAssignmentMetadataKey(), None:
                if key.group_id in self.groups:
                    self.groups[key.group_id].target_epoch = 0
            case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue() | None:
                self._apply_target(key, value)
            case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue() | None:
                self._apply_position(key, value)
            case _:
                return False
        return True

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ConsumerGroup(group_id)
        return group

    def _apply_topics(
        self, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        if value is not None:
            self._group(key.group_id).topics = {
                topic.topic_name: TopicFacts(topic.topic_id, topic.num_partitions) for topic in value.topics
            }
        elif key.group_id in self.groups:
            self.groups[key.group_id].topics = {}

    def _apply_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is not None:
            self._group(key.group_id).set_target(key.member_id, partitions_of(value.topic_partitions))
        elif key.group_id in self.groups:
            self.groups[key.group_id].set_target(key.member_id, None)

    def _apply_position(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            self._group(key.group_id).set_position(key.member_id, position_from(value))
        elif key.group_id in self.groups:
            self.groups[key.group_id].set_position(key.member_id, None)
