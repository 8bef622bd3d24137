"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a group of the newer protocol.

Such members do not divide anything. Joining is what a heartbeat is to the others: it says what the member wants and
what it still has, and takes it one step towards its target. The generation it is told is its epoch, the share it asks
for next is what it may read now, and its heartbeats tell it when to join again. Nobody waits for anybody: all is
answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.decision import Decision
from tidelog.coordinators.groups.consumer_checks import check_ids, check_size, identified_member
from tidelog.coordinators.groups.consumer_downgrade import assignment_bytes
from tidelog.coordinators.groups.consumer_member import (
    ClassicPart,
    ConsumerMember,
    MemberState,
    Profile,
    Subscription,
)
from tidelog.coordinators.groups.consumer_timers import join_key, session_key, sync_key
from tidelog.coordinators.groups.consumer_upgrade import owned_partitions
from tidelog.coordinators.groups.rebalance import join_error, sync_error
from tidelog.coordinators.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, read_subscription
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinators.decision import Ticket
    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.coordinators.groups.consumer_table import ConsumerTable
    from tidelog.coordinators.groups.topics import Caller
    from tidelog.wire.messages.heartbeat import HeartbeatRequest
    from tidelog.wire.messages.join_group import JoinGroupRequest
    from tidelog.wire.messages.leave_group import LeaveGroupRequest
    from tidelog.wire.messages.sync_group import SyncGroupRequest
    from tidelog.wire.stored.consumer_protocol import ConsumerProtocolSubscription

MEMBER_ID_REQUIRED_SINCE = 4

LEAVING_AT_ONCE_MAX = 1000
"""Their tombstones are one batch, and a batch has a limit. Whoever is beyond it may try again."""


class ClassicRequests:
    def __init__(self, table: ConsumerTable, new_id: Callable[[], str]) -> None:
        self._table = table
        self._new_id = new_id

    # --- JoinGroup ---

    def join(self, ticket: Ticket, request: JoinGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        draft = Decision()
        try:
            reply = self._join(self._table.groups[request.group_id], request, caller, now_ms, draft)
            self._table.check_fits(draft.records)
        except BrokerError as error:
            reply = join_error(error.code, caller.version, request.member_id)
        else:
            out.records += draft.records
            out.timers += draft.timers
        out.reply(ticket, reply)

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now_ms: int, out: Decision
    ) -> JoinGroupResponse:
        config = self._table.config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)
        instance_id = request.group_instance_id
        name = caller.client_id if instance_id is None else instance_id
        member_id = request.member_id or f"{name}-{self._new_id()}"
        check_ids(member_id, instance_id, *(protocol.name for protocol in request.protocols))
        check_size(group, member_id, config.consumer_max_size)
        subscription = self._check_protocols(group, request)
        if not request.member_id and instance_id is None and caller.version >= MEMBER_ID_REQUIRED_SINCE:
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, caller.version, member_id)
        former = None if instance_id is None else group.static_member(instance_id)
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        elif request.member_id:
            member = identified_member(group, member_id, instance_id)
        else:
            member = ConsumerMember(member_id)
        profile = _profile(request, subscription, caller)
        if former is not None and self._table.becomes_classic(group, {former.member_id}, profile.classic):
            staying = [other for other in group.members.values() if other is not former]
            replacing = ConsumerMember(member_id, profile, former.position)
            self._table.downgrade(group, [*staying, replacing], now_ms, out)
            return _joined(request, member_id, group.epoch)
        turn = self._table.turn(group, caller.topics, now_ms, out)
        if former is not None and former is not member:
            member = turn.replace(former, member_id)
        position = turn.take(member, profile, owned_partitions(subscription, caller.topics))
        self._watch(group, member_id, request.session_timeout_ms, profile.rebalance_timeout_ms, now_ms, out)
        member.deadline_ms = now_ms + request.session_timeout_ms
        member.rejoin_by_ms = None
        return _joined(request, member_id, position.epoch)

    def _check_protocols(self, group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
        """What the member subscribes to, if it and all other classic members have a protocol in common."""
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        joiners = {request.member_id, group.static_ids.get(request.group_instance_id or "", "")}
        common = {protocol.name for protocol in request.protocols}
        for member_id, member in group.members.items():
            if member.profile.classic is not None and member_id not in joiners:
                common &= {name for name, _metadata in member.profile.classic.protocols}
        if not common:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        subscription = read_subscription(request.protocols[0].metadata)
        if subscription is None:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the subscription cannot be read")
        return subscription

    def _watch(
        self, group: ConsumerGroup, member_id: str, session_ms: int, rebalance_ms: int, now_ms: int, out: Decision
    ) -> None:
        out.cancel(join_key(group.group_id, member_id))
        out.arm(session_key(group.group_id, member_id), now_ms + session_ms)
        out.arm(sync_key(group.group_id, member_id), now_ms + rebalance_ms)

    # --- SyncGroup ---

    def sync(self, ticket: Ticket, request: SyncGroupRequest, _caller: Caller, now_ms: int, out: Decision) -> None:
        group = self._table.groups[request.group_id]
        try:
            out.reply(ticket, self._sync(group, request, now_ms, out))
        except BrokerError as error:
            out.reply(ticket, sync_error(error.code))

    def _sync(self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int, out: Decision) -> SyncGroupResponse:
        member = identified_member(group, request.member_id, request.group_instance_id)
        part = _classic_part(member)
        _check_generation(member, request.generation_id)
        if request.protocol_type is not None and request.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name is not None and request.protocol_name != part.protocols[0][0]:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A member that is to let go of something has joined this round already: it must first learn what.
        if group.epoch > member.position.epoch and member.position.state is not MemberState.UNREVOKED_PARTITIONS:
            self._ask_to_rejoin(group, member, now_ms, out)
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        out.cancel(sync_key(group.group_id, member.member_id))
        self._table.touch(member, now_ms)
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.position.assigned, group.topics, part),
        )

    # --- Heartbeat ---

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now_ms: int, out: Decision) -> None:
        group = self._table.groups[request.group_id]
        try:
            code = self._heartbeat(group, request, now_ms, out)
        except BrokerError as error:
            code = error.code
        out.reply(ticket, HeartbeatResponse(error_code=code))

    def _heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int, out: Decision) -> ErrorCode:
        member = identified_member(group, request.member_id, request.group_instance_id)
        _classic_part(member)
        _check_generation(member, request.generation_id)
        self._table.touch(member, now_ms)
        position = member.position
        can_get_more = position.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
        if position.epoch < group.epoch or position.state is MemberState.UNREVOKED_PARTITIONS or can_get_more:
            self._ask_to_rejoin(group, member, now_ms, out)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _ask_to_rejoin(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: Decision) -> None:
        if member.rejoin_by_ms is None:
            member.rejoin_by_ms = now_ms + member.profile.rebalance_timeout_ms
            out.arm(join_key(group.group_id, member.member_id), member.rejoin_by_ms)

    # --- LeaveGroup ---

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        """Members of the newer protocol can be removed too, as administrators do by instance id."""
        group = self._table.groups[request.group_id]
        named = request.members if caller.version >= 3 else [MemberIdentity(member_id=request.member_id)]
        leaving: dict[str, ConsumerMember] = {}
        answers = []
        for identity in named:
            code = ErrorCode.NONE if len(leaving) < LEAVING_AT_ONCE_MAX else ErrorCode.COORDINATOR_NOT_AVAILABLE
            try:
                member = _to_remove(group, identity)
                if not code:
                    leaving[member.member_id] = member
            except BrokerError as error:
                code = error.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        self._table.fence(group, leaving.values(), now_ms, out)
        if caller.version >= 3:
            out.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers))
        else:
            out.reply(ticket, LeaveGroupResponse(error_code=answers[0].error_code))


def _joined(request: JoinGroupRequest, member_id: str, generation: int) -> JoinGroupResponse:
    """Nobody is told that it leads: there is nothing for it to divide."""
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=generation,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        leader="",
        member_id=member_id,
        members=[],
    )


def _to_remove(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is not None and not identity.member_id:
        holder = group.static_ids.get(identity.group_instance_id, "")
        return identified_member(group, holder, identity.group_instance_id)
    return identified_member(group, identity.member_id, identity.group_instance_id)


def _profile(request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, caller: Caller) -> Profile:
    rebalance_ms = request.rebalance_timeout_ms
    return Profile(
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscription=Subscription(frozenset(subscription.topics), ""),
        rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else request.session_timeout_ms,
        assignor=None,
        classic=ClassicPart(
            request.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        ),
    )


def _classic_part(member: ConsumerMember) -> ClassicPart:
    part = member.profile.classic
    if part is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} is not a classic one.")
    return part


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.position.epoch:
        raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
