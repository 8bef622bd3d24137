"""ConsumerGroupHeartbeat (v0-1): joining, staying, letting go, leaving.

    epoch 0    join, or join again after being thrown out; says everything, owns nothing
    epoch > 0  still here. Says what has changed since last time, or everything after an error
    epoch -1   leave
    epoch -2   a static member leaves for a while, and keeps its place until its session ends

v1 members choose their own id · v1 subscribes by pattern. The reply tells the assignment only when it has changed, or
when the member has said everything and so may have missed a reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.decision import Decision
from tidelog.coordinators.groups.consumer_checks import (
    check_epoch,
    check_released,
    check_request,
    check_size,
    identified_member,
)
from tidelog.coordinators.groups.consumer_group import ConsumerGroup
from tidelog.coordinators.groups.consumer_member import (
    LEFT_FOR_A_WHILE_EPOCH,
    NOT_JOINED_EPOCH,
    ConsumerMember,
    Partitions,
    Subscription,
    partitions_of,
)
from tidelog.coordinators.groups.consumer_records import position_record
from tidelog.coordinators.groups.consumer_table import ConsumerTable
from tidelog.coordinators.groups.consumer_timers import join_key, revoke_key, session_key, sync_key
from tidelog.coordinators.groups.consumer_upgrade import check_upgrade, upgraded
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinators.decision import Ticket
    from tidelog.coordinators.groups.classic_groups import ClassicGroups
    from tidelog.coordinators.groups.consumer_member import Profile
    from tidelog.coordinators.groups.consumer_turn import Turn
    from tidelog.coordinators.groups.topics import Caller
    from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Heartbeats:
    def __init__(self, table: ConsumerTable, classic: ClassicGroups, new_id: Callable[[], str]) -> None:
        self._table = table
        self._classic = classic
        self._new_id = new_id
        self._config = table.config

    def handle(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Decision
    ) -> None:
        """Decides all or nothing: a request that is refused leaves no record."""
        reply = self._nothing_new(request, caller, now_ms)
        if reply is None:
            draft = Decision()
            try:
                reply = self._decide(request, caller, now_ms, draft)
            except BrokerError as error:
                reply = _refusal(error)
            else:
                out.records += draft.records
                out.replies += draft.replies
                out.timers += draft.timers
        out.replies.append((ticket, reply))

    def _nothing_new(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse | None:
        """The answer to nearly all heartbeats: a settled member says only that it is there. None if it is not so."""
        group = self._table.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if group is None or member is None or group.epoch != group.target_epoch:
            return None
        profile = member.profile
        if (
            request.member_epoch != group.target_epoch
            or not member.position.is_settled_in(group.target_epoch)
            or request.topic_partitions is not None
            or request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None
            or request.rebalance_timeout_ms != -1
            or request.server_assignor is not None
            or request.rack_id is not None
            or (request.instance_id is not None and request.instance_id != profile.instance_id)
            or profile.classic is not None
            or profile.client_id != caller.client_id
            or profile.client_host != caller.client_host
        ):
            return None
        member.deadline_ms = now_ms + self._config.consumer_session_timeout_ms
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=self._config.consumer_heartbeat_interval_ms,
        )

    def _decide(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Decision
    ) -> ConsumerGroupHeartbeatResponse:
        if "consumer" not in self._config.rebalance_protocols:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                "group.coordinator.rebalance.protocols does not offer the consumer protocol: use the classic one",
            )
        check_request(request, caller.version, self._table.assignors)
        if request.member_epoch < NOT_JOINED_EPOCH:
            return self._leave(request, now_ms, out)
        if request.member_epoch == NOT_JOINED_EPOCH:
            return self._join(request, caller, now_ms, out)
        group = self._existing(request.group_id)
        owned = None if request.topic_partitions is None else partitions_of(request.topic_partitions)
        member = identified_member(group, request.member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
        turn = self._table.turn(group, caller.topics, now_ms, out)
        return self._take_turn(turn, group, member, request, caller, owned, now_ms, out)

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._table.groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return group

    # --- joining ---

    def _join(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Decision
    ) -> ConsumerGroupHeartbeatResponse:
        """The group that is joined may be there, may be a classic one, or may begin with this member."""
        classic = self._classic.get(request.group_id)
        if classic is None:
            group = self._table.groups.get(request.group_id) or ConsumerGroup(request.group_id)
            return self._join_group(group, request, caller, now_ms, out)
        draft = Decision()
        if classic.members:
            group = self._upgrade(request.group_id, caller, now_ms, draft)
        else:
            group = ConsumerGroup(request.group_id)
        reply = self._join_group(group, request, caller, now_ms, draft)
        # Only now is it certain: the classic group ends at once, and its tombstone comes first.
        self._classic.dissolve(classic, out)
        out.records += draft.records
        out.timers += draft.timers
        return reply

    def _upgrade(self, group_id: str, caller: Caller, now_ms: int, out: Decision) -> ConsumerGroup:
        """The group as it will be once its new records are applied."""
        classic = self._classic.get(group_id)
        assert classic is not None, "whoever upgrades a group has it"
        check_upgrade(classic, self._config)
        out.records += upgraded(classic, caller.topics)
        table = ConsumerTable(self._config)
        for record in out.records:
            table.apply(record.key, record.value)
        group = table.groups[group_id]
        for member_id, member in group.members.items():
            timeout_ms = member.session_timeout_ms(self._config.consumer_session_timeout_ms)
            self._table.begin_session(group_id, member_id, timeout_ms, now_ms, out)
        return group

    def _join_group(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now_ms: int,
        out: Decision,
    ) -> ConsumerGroupHeartbeatResponse:
        check_size(group, request.member_id, self._config.consumer_max_size)
        member_id = request.member_id or self._new_id()
        turn = self._table.turn(group, caller.topics, now_ms, out)
        instance_id = request.instance_id
        former = None if instance_id is None else group.static_member(instance_id)
        if former is None or instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            if former.profile.classic is None:
                check_released(former, member_id, instance_id)
            member = former if former.member_id == member_id else turn.replace(former, member_id)
        if member_id not in group.members:
            session_ms = self._config.consumer_session_timeout_ms
            self._table.begin_session(group.group_id, member_id, session_ms, now_ms, out)
        return self._take_turn(turn, group, member, request, caller, {}, now_ms, out)

    def _take_turn(
        self,
        turn: Turn,
        group: ConsumerGroup,
        member: ConsumerMember,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        owned: Partitions | None,
        now_ms: int,
        out: Decision,
    ) -> ConsumerGroupHeartbeatResponse:
        former = member.position
        profile = _updated(member.profile, request, caller)
        if member.profile.classic is not None:  # it has changed over to the newer protocol, with its timers
            out.cancel(join_key(group.group_id, member.member_id))
            out.cancel(sync_key(group.group_id, member.member_id))
            out.arm(session_key(group.group_id, member.member_id), now_ms + self._config.consumer_session_timeout_ms)
        position = turn.take(member, profile, owned)
        self._table.check_fits(out.records)
        member.deadline_ms = now_ms + self._config.consumer_session_timeout_ms
        said_everything = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        tell = request.member_epoch == NOT_JOINED_EPOCH or said_everything or position.assigned != former.assigned
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=position.epoch,
            heartbeat_interval_ms=self._config.consumer_heartbeat_interval_ms,
            assignment=_assignment(position.assigned) if tell else None,
        )

    # --- leaving ---

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: int, out: Decision
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._existing(request.group_id)
        member = identified_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEFT_FOR_A_WHILE_EPOCH:
            position = member.position._replace(epoch=LEFT_FOR_A_WHILE_EPOCH, revoking={})
            out.records.append(position_record(group.group_id, member.member_id, position))
            out.cancel(revoke_key(group.group_id, member.member_id))
        else:
            self._table.fence(group, [member], now_ms, out)
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )


def _refusal(error: BrokerError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _updated(profile: Profile, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Profile:
    """What the member is known by, with what it says now. What it does not say has not changed."""
    subscription = profile.subscription
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    if names is not None and subscription.topics != (said := frozenset(names)):
        subscription = Subscription(said, subscription.pattern)
    if pattern is not None and pattern != subscription.pattern:
        subscription = Subscription(subscription.topics, pattern)
    return profile._replace(
        instance_id=request.instance_id if request.instance_id is not None else profile.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else profile.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscription=subscription,
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if request.rebalance_timeout_ms != -1
        else profile.rebalance_timeout_ms,
        assignor=request.server_assignor if request.server_assignor is not None else profile.assignor,
        classic=None,
    )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitionsResponse(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in sorted(partitions.items())
        ]
    )
