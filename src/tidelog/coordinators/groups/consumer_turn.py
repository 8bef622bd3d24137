"""One member's turn: what its request changes in its group, decided step by step.

    1. what the member says of itself is taken over
    2. if what is to be divided has changed, the group's epoch grows
    3. if the target is older than the group, the partitions are divided anew
    4. the member goes one step towards its target

Each step adds records to the decision and leaves the group as it is: the records change it when they are applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer_member import (
    NOT_JOINED_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
    Position,
    Profile,
)
from tidelog.coordinators.groups.consumer_reconcile import reconcile
from tidelog.coordinators.groups.consumer_records import (
    epoch_record,
    member_tombstones,
    position_record,
    profile_record,
    target_epoch_record,
    target_record,
    topics_record,
)
from tidelog.coordinators.groups.consumer_target import divide, pause_ms, readable_ids, topic_facts
from tidelog.coordinators.groups.consumer_timers import cancel_all, revoke_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.coordinators.decision import Decision
    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.coordinators.groups.consumer_member import Subscription
    from tidelog.coordinators.groups.consumer_records import TopicFacts
    from tidelog.coordinators.groups.regex import TopicPatterns
    from tidelog.coordinators.groups.topics import ClusterTopics


class Turn:
    def __init__(
        self,
        group: ConsumerGroup,
        topics: ClusterTopics,
        patterns: TopicPatterns,
        assignors: Sequence[str],
        now_ms: int,
        out: Decision,
    ) -> None:
        self._group = group
        self._cluster = topics
        self._patterns = patterns
        self._assignors = assignors
        self._now_ms = now_ms
        self._out = out
        self._replaced: str | None = None
        self._subscription_changed = False
        self._epoch = group.epoch
        self._topics: Mapping[str, TopicFacts] = group.topics
        if not patterns.informed and any(subscription.pattern for subscription in group.subscriptions):
            patterns.show(topics.names())

    def replace(self, former: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member comes back under another member id and takes the former one's place."""
        group_id = self._group.group_id
        position = former.position._replace(epoch=NOT_JOINED_EPOCH, previous_epoch=NOT_JOINED_EPOCH)
        member = ConsumerMember(member_id, former.profile, position)
        self._replaced = former.member_id
        self._out.records += member_tombstones(group_id, former.member_id)
        self._out.records.append(profile_record(group_id, member_id, former.profile))
        self._out.records.append(target_record(group_id, member_id, self._group.target.get(former.member_id, {})))
        self._out.records.append(position_record(group_id, member_id, position))
        cancel_all(group_id, former.member_id, self._out)
        return member

    def take(self, member: ConsumerMember, profile: Profile, owned: Partitions | None) -> Position:
        """Takes the member through all steps and tells where it then is."""
        self._update_profile(member, profile)
        if self._subscription_changed or self._group.epoch == 0:
            self._bump_epoch(member, profile)
        target_epoch, target = self._target_of(member, profile)
        return self._reconcile(member, profile, target_epoch, target, owned)

    # --- 1 ---

    def _update_profile(self, member: ConsumerMember, profile: Profile) -> None:
        known = member.member_id in self._group.members or self._replaced is not None
        if profile != member.profile or not known:
            self._out.records.append(profile_record(self._group.group_id, member.member_id, profile))
        pattern = profile.subscription.pattern
        self._subscription_changed = profile.subscription != member.profile.subscription
        if pattern and pattern != member.profile.subscription.pattern:
            self._patterns.check(pattern)
            if not self._patterns.informed:
                self._patterns.show(self._cluster.names())

    # --- 2 ---

    def _bump_epoch(self, member: ConsumerMember, profile: Profile) -> None:
        group_id = self._group.group_id
        subscriptions = self._subscriptions_with(member, profile)
        self._topics = topic_facts(subscriptions, self._cluster, self._patterns)
        if self._topics != self._group.topics:
            self._out.records.append(topics_record(group_id, self._topics))
        self._epoch += 1
        self._out.records.append(epoch_record(group_id, self._epoch))

    def _subscriptions_with(self, member: ConsumerMember, profile: Profile) -> set[Subscription]:
        """Those of the group once this member has changed its own."""
        former = self._group.members.get(self._replaced or member.member_id)
        counts = self._group.subscriptions
        subscriptions = {
            subscription
            for subscription, count in counts.items()
            if count > (former is not None and former.profile.subscription == subscription)
        }
        return {*subscriptions, profile.subscription}

    # --- 3 ---

    def _target_of(self, member: ConsumerMember, profile: Profile) -> tuple[int, Partitions]:
        group = self._group
        # Without a target there is no epoch to be in, and a classic member cannot go on before it is in the newest one.
        may_wait = group.target_epoch > 0 and profile.classic is None
        if self._epoch <= group.target_epoch or (may_wait and self._now_ms < group.divide_after_ms):
            return group.target_epoch, self._current_target(member)
        profiles = {member_id: other.profile for member_id, other in group.members.items()}
        current: dict[str, Partitions] = dict(group.target)
        wishes = {member.member_id: profile.assignor}
        if self._replaced is not None:
            del profiles[self._replaced]
            current[member.member_id] = current.pop(self._replaced, {})
            wishes[self._replaced] = None
        profiles[member.member_id] = profile
        assignor = group.preferred_assignor(self._assignors, wishes)
        target = divide(profiles, current, self._topics, self._patterns, assignor)
        self._out.records += [
            target_record(group.group_id, member_id, share)
            for member_id, share in target.items()
            if current.get(member_id) != share
        ]
        self._out.records.append(target_epoch_record(group.group_id, self._epoch))
        group.divide_after_ms = self._now_ms + pause_ms(len(profiles))
        return self._epoch, target[member.member_id]

    def _current_target(self, member: ConsumerMember) -> Partitions:
        return self._group.target.get(self._replaced or member.member_id, {})

    # --- 4 ---

    def _reconcile(
        self,
        member: ConsumerMember,
        profile: Profile,
        target_epoch: int,
        target: Partitions,
        owned: Partitions | None,
    ) -> Position:
        group, former = self._group, member.position
        if former.is_settled_in(target_epoch) and not self._subscription_changed:
            return former
        mine = {None, member.member_id, self._replaced}
        position = reconcile(
            former,
            target_epoch,
            target,
            readable_ids(profile.subscription, self._topics, self._patterns),
            owned,
            lambda topic_id, number: group.owner(topic_id, number) in mine,
            subscription_changed=self._subscription_changed,
        )
        if position != former:
            self._out.records.append(position_record(group.group_id, member.member_id, position))
            if profile.classic is None:
                self._watch_revocation(member, position, profile.rebalance_timeout_ms)
        return position

    def _watch_revocation(self, member: ConsumerMember, position: Position, timeout_ms: int) -> None:
        """A member that does not let go in time is thrown out, so that the others can go on."""
        key = revoke_key(self._group.group_id, member.member_id)
        if position.state is MemberState.UNREVOKED_PARTITIONS:
            self._out.arm(key, self._now_ms + timeout_ms)
        elif member.position.state is MemberState.UNREVOKED_PARTITIONS:
            self._out.cancel(key)
