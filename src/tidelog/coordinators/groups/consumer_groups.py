"""All groups of the newer protocol (KIP-848) of one shard: the one place that the shard asks.

ConsumerGroupHeartbeat goes to `heartbeat` whatever kind the group is: joining may turn a classic group into one of
these. A classic request for a group that is `in` here goes to `join`, `sync`, `classic_heartbeat` or `leave`, except a
join to one that has no members: that one is `delete`d, and a classic group begins.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from tidelog.coordinators.groups import consumer_describe
from tidelog.coordinators.groups.consumer_checks import check_member_epoch
from tidelog.coordinators.groups.consumer_classic_requests import ClassicRequests
from tidelog.coordinators.groups.consumer_heartbeat import Heartbeats
from tidelog.coordinators.groups.consumer_member import MemberState
from tidelog.coordinators.groups.consumer_records import group_tombstones, stored_bytes
from tidelog.coordinators.groups.consumer_table import ConsumerTable
from tidelog.coordinators.groups.consumer_target import topic_names
from tidelog.coordinators.groups.consumer_timers import DOWNGRADED, JOIN, REVOKE, SESSION, SYNC, TOPICS, session_key
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from tidelog.coordinators.decision import Decision, Ticket
    from tidelog.coordinators.groups.classic_groups import ClassicGroups
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.coordinators.groups.consumer_member import ConsumerMember
    from tidelog.coordinators.groups.topics import Caller, ClusterTopics
    from tidelog.wire.declare import Message
    from tidelog.wire.messages.consumer_group_describe import DescribedGroup
    from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from tidelog.wire.messages.list_groups import ListedGroup

logger = logging.getLogger(__name__)

OFFSET_COMMIT_WITH_EPOCH_SINCE = 9


class ConsumerGroups:
    def __init__(self, config: GroupConfig, new_id: Callable[[], str], classic: ClassicGroups) -> None:
        """`classic` are the classic groups of the same shard."""
        self._config = config
        self._classic = classic
        self._table = ConsumerTable(config)
        self._unaware: deque[str] = deque()
        """Groups that are still to be told of a change of topics."""
        self._changed_topics: ClusterTopics | None = None
        self._up_to_date = True
        """Whether topics that changed while the groups were loaded have been looked at."""
        requests = ClassicRequests(self._table, new_id)
        self._heartbeat = Heartbeats(self._table, classic, new_id).handle
        self.join = requests.join
        self.sync = requests.sync
        self.classic_heartbeat = requests.heartbeat
        self.leave = requests.leave

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._table.groups

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._table.groups.values()))

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._table.groups.get(group_id)

    def heartbeat(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Decision
    ) -> None:
        if not self._up_to_date:
            self._look_at_topics(caller.topics)
            out.arm((TOPICS,), now_ms)
        self._heartbeat(ticket, request, caller, now_ms, out)

    # --- offsets ---

    def check_commit(
        self, group_id: str, member_id: str, epoch: int, version: int = OFFSET_COMMIT_WITH_EPOCH_SINCE
    ) -> ErrorCode:
        """Whether offsets may be committed by this member, or, with a negative epoch, by somebody who is none."""
        group = self._table.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if epoch < 0 and not group.members:
            return ErrorCode.NONE
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.profile.classic is None and version < OFFSET_COMMIT_WITH_EPOCH_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        return check_member_epoch(member, epoch)

    def check_commit_in_transaction(
        self, group_id: str, member_id: str, instance_id: str | None, epoch: int
    ) -> ErrorCode:
        """As `check_commit`, for a producer, who may speak for nobody in particular, and knows only older errors."""
        if epoch < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        code = self.check_commit(group_id, member_id, epoch)
        return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether offsets may be fetched. Somebody who names no member may always."""
        group = self._table.groups.get(group_id)
        if group is None or (not member_id and epoch < 0):
            return ErrorCode.NONE
        member = group.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else check_member_epoch(member, epoch)

    def touch(self, group_id: str, member_id: str, now_ms: int) -> None:
        """A classic member has shown otherwise that it is alive, by a commit."""
        group = self._table.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is not None and member.profile.classic is not None:
            self._table.touch(member, now_ms)

    def subscribed_to(self, group_id: str, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets are neither deleted nor forgotten."""
        group = self._table.groups.get(group_id)
        if group is None:
            return False
        if topic in group.topics:
            return True
        patterns = self._table.patterns
        return any(
            topic in (topic_names(subscription, patterns) if patterns.informed else subscription.topics)
            for subscription in group.subscriptions
        )

    # --- administration ---

    def describe(self, group_id: str) -> DescribedGroup:
        group = self._table.groups.get(group_id)
        if group is None:
            return consumer_describe.not_found(group_id)
        return consumer_describe.described(group, group.preferred_assignor(self._table.assignors))

    def listed(self) -> list[ListedGroup]:
        return [consumer_describe.listed(group) for group in self._table.groups.values()]

    def check_delete(self, group_id: str) -> ErrorCode:
        group = self._table.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE

    def delete(self, group_id: str, out: Decision) -> None:
        group = self._table.groups[group_id]
        assert not group.members, f"{group_id} is not empty"
        out.records += group_tombstones(group_id, group.target)

    # --- what happens without a request ---

    def apply(self, key: Message, value: Message | None) -> bool:
        """Takes in one record. False if it is not one of these groups'."""
        return self._table.apply(key, value)

    def on_loaded(self, now_ms: int, out: Decision) -> None:
        for group in self:
            self._table.arm(group, now_ms, out)
        self._up_to_date = not self._table.groups

    def on_topics_changed(self, topics: ClusterTopics, now_ms: int, out: Decision) -> None:
        """Groups that subscribe to what has changed are divided anew when their members next report."""
        self._look_at_topics(topics)
        self._tell_unaware(now_ms, out)

    def _look_at_topics(self, topics: ClusterTopics) -> None:
        patterns = self._table.patterns
        if any(subscription.pattern for group in self for subscription in group.subscriptions):
            patterns.show(topics.names())
        else:
            patterns.forget()
        self._changed_topics = topics
        self._unaware = deque(group_id for group_id, group in self._table.groups.items() if group.members)
        self._up_to_date = True

    def _tell_unaware(self, now_ms: int, out: Decision) -> None:
        """In portions that fit into one batch; a timer that is due at once brings the next portion."""
        room = self._config.record_bytes_max
        while self._unaware and self._changed_topics is not None:
            group = self._table.groups.get(self._unaware[0])
            records = [] if group is None else self._table.refreshed(group, self._changed_topics)
            needed = stored_bytes(records)
            if needed > self._config.record_bytes_max:
                logger.warning(
                    "Group %s is not told of new topics: what it subscribes to takes %d bytes to store, more than "
                    "message.max.bytes",
                    self._unaware[0],
                    needed,
                )
            elif needed > room:
                out.arm((TOPICS,), now_ms)
                return
            else:
                room -= needed
                out.records += records
            self._unaware.popleft()
        self._changed_topics = None

    def on_timer(self, key: Hashable, now_ms: int, out: Decision) -> bool:
        """Whether the timer was one of ours."""
        match key:
            case (str(kind), str(group_id), str(member_id)) if kind in {SESSION, REVOKE, JOIN, SYNC}:
                group = self._table.groups.get(group_id)
                member = None if group is None else group.members.get(member_id)
                if group is not None and member is not None:
                    self._on_member_timer(kind, group, member, now_ms, out)
            case (str(kind),) if kind == TOPICS:
                self._tell_unaware(now_ms, out)
            case (str(kind), str(group_id)) if kind == DOWNGRADED:
                classic = self._classic.get(group_id)
                if classic is not None:
                    self._classic.arm(classic, now_ms, out)
            case _:
                return False
        return True

    def _on_member_timer(
        self, kind: str, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: Decision
    ) -> None:
        if kind == SESSION and member.deadline_ms > now_ms:
            out.arm(session_key(group.group_id, member.member_id), member.deadline_ms)
            return
        if kind == REVOKE and member.position.state is not MemberState.UNREVOKED_PARTITIONS:
            return
        self._table.fence(group, [member], now_ms, out)
