"""All classic groups of a shard, and what their members may ask of them.

JoinGroup (v0-9), SyncGroup (v0-5), Heartbeat (v0-4), LeaveGroup (v0-5):

JoinGroup v1 own rebalance timeout · v4 a newcomer is first given its id · v5 static members · v9 a static leader that
restarted is told to skip the assignment; SyncGroup v5 names the protocol it believes in; LeaveGroup v3 names several
members, by instance id too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.classic_group import ClassicGroup, ClassicMember, GroupState, Waiter
from tidelog.coordinators.groups.rebalance import (
    JOIN,
    NEWCOMER_WAIT_MS,
    SESSION,
    SYNC,
    Rounds,
    current_members,
    join_error,
    join_response,
    sync_error,
    sync_response,
)
from tidelog.coordinators.groups.subscriptions import same_subscription
from tidelog.errors import ErrorCode
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from tidelog.wire.stored.classic_groups import GroupMetadataKey

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from tidelog.coordinators.decision import Decision, Ticket
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.topics import Caller
    from tidelog.wire.messages.join_group import JoinGroupRequest
    from tidelog.wire.messages.sync_group import SyncGroupRequest
    from tidelog.wire.stored.classic_groups import GroupMetadataValue

PENDING_MEMBERS_MAX = 10_000
"""Ids that one group gives out before somebody joins with one of them. Clients ask for one and use it at once."""


class _Joiner(NamedTuple):
    """Somebody at the door."""

    request: JoinGroupRequest
    protocols: dict[str, bytes]
    waiter: Waiter
    caller: Caller

    def refuse(self, code: ErrorCode, out: Decision) -> None:
        out.reply(self.waiter.ticket, join_error(code, self.waiter.version, self.request.member_id))


class ClassicGroups:
    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        self._config = config
        self._new_id = new_id
        self._rounds = Rounds(config)
        self._groups: dict[str, ClassicGroup] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    # --- JoinGroup ---

    def join(self, ticket: Ticket, request: JoinGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        code = self._check_join(request)
        group = self._groups.get(request.group_id)
        if not code and group is None and request.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code:
            out.reply(ticket, join_error(code, caller.version, request.member_id))
            return
        if group is None:
            group = self._groups[request.group_id] = ClassicGroup(request.group_id)
        joiner = _Joiner(request, _protocols(request), Waiter(ticket, caller.version), caller)
        known_id = request.member_id or group.static_ids.get(request.group_instance_id or "", "")
        if not group.accepts(known_id, self._config.max_size):
            group.pending.discard(request.member_id)
            joiner.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, out)
        elif not group.supports(request.protocol_type, joiner.protocols, group.members.get(known_id)):
            joiner.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, out)
            self._forget_if_idle(group)
        elif not request.member_id:
            self._join_unknown(group, joiner, now_ms, out)
        elif request.member_id in group.pending and request.group_instance_id is None:
            self._add(group, request.member_id, joiner, now_ms, out)
        else:
            self._join_known(group, joiner, now_ms, out)

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        config = self._config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if sum(len(protocol.metadata) + len(protocol.name) for protocol in request.protocols) > config.record_bytes_max:
            return ErrorCode.INVALID_REQUEST  # no generation with this member could ever be stored
        return ErrorCode.NONE

    def _join_unknown(self, group: ClassicGroup, joiner: _Joiner, now_ms: int, out: Decision) -> None:
        """Somebody without a member id: new here, or a static member that has restarted."""
        request, caller = joiner.request, joiner.caller
        instance_id = request.group_instance_id
        member_id = f"{instance_id if instance_id is not None else caller.client_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_ids:
            self._replace_static(group, group.members[group.static_ids[instance_id]], member_id, joiner, now_ms, out)
        elif instance_id is not None or caller.version < 4:
            self._add(group, member_id, joiner, now_ms, out)
        elif len(group.pending) >= PENDING_MEMBERS_MAX:
            joiner.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, out)
        else:
            group.pending.add(member_id)
            out.arm((SESSION, group.group_id, member_id), now_ms + request.session_timeout_ms)
            out.reply(joiner.waiter.ticket, join_error(ErrorCode.MEMBER_ID_REQUIRED, joiner.waiter.version, member_id))

    def _join_known(self, group: ClassicGroup, joiner: _Joiner, now_ms: int, out: Decision) -> None:
        code = group.check_member(joiner.request.member_id, joiner.request.group_instance_id)
        if code:
            joiner.refuse(code, out)
            return
        member = group.members[joiner.request.member_id]
        leads = member.member_id == group.leader
        unchanged = member.supports_the_same(joiner.protocols)
        missed_its_reply = group.state is GroupState.COMPLETING_REBALANCE and unchanged
        wants_nothing_new = group.state is GroupState.STABLE and unchanged and not leads
        if missed_its_reply or wants_nothing_new:
            member.alive(now_ms)
            roster = current_members(group) if leads else []
            out.reply(joiner.waiter.ticket, join_response(group, member.member_id, roster))
            return
        self._take_over(group, member, joiner, now_ms, out)
        self._rounds.park_join(group, member, joiner.waiter, now_ms, out)
        self._rounds.go_on(group, now_ms, out)

    def _add(self, group: ClassicGroup, member_id: str, joiner: _Joiner, now_ms: int, out: Decision) -> None:
        request, caller = joiner.request, joiner.caller
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            protocols=joiner.protocols,
            deadline_ms=now_ms + request.session_timeout_ms,
            newcomer_until_ms=now_ms + NEWCOMER_WAIT_MS,
        )
        group.add(member, request.protocol_type)
        group.newcomers = True
        out.arm((SESSION, group.group_id, member_id), member.deadline_ms)
        self._rounds.park_join(group, member, joiner.waiter, now_ms, out)
        self._rounds.go_on(group, now_ms, out)

    def _take_over(
        self, group: ClassicGroup, member: ClassicMember, joiner: _Joiner, now_ms: int, out: Decision
    ) -> None:
        """What the member now says of itself holds from now on."""
        request = joiner.request
        if request.session_timeout_ms < member.session_timeout_ms:
            # The timer that is set would fire too late.
            out.arm((SESSION, group.group_id, member.member_id), now_ms + request.session_timeout_ms)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.client_id, member.client_host = joiner.caller.client_id, joiner.caller.client_host
        member.alive(now_ms)
        group.change_protocols(member, joiner.protocols)

    def _replace_static(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        member_id: str,
        joiner: _Joiner,
        now_ms: int,
        out: Decision,
    ) -> None:
        """A static member comes back under a new member id. If it wants what it had, nobody else needs to notice."""
        self._rounds.end_join(group, member, ErrorCode.FENCED_INSTANCE_ID, now_ms, out)
        self._rounds.end_sync(member, sync_error(ErrorCode.FENCED_INSTANCE_ID), now_ms, out)
        former_leader, former_metadata = group.leader, member.metadata(group.protocol)
        out.cancel((SESSION, group.group_id, member.member_id))
        group.rename(member, member_id)
        self._take_over(group, member, joiner, now_ms, out)
        out.arm((SESSION, group.group_id, member_id), member.deadline_ms)
        value = group.divided(_assignments(group), now_ms)
        keeps_its_share = group.state is GroupState.STABLE and self._keeps_its_share(group, member, former_metadata)
        if not keeps_its_share or not self._rounds.fits(value):
            self._rounds.park_join(group, member, joiner.waiter, now_ms, out)
            self._rounds.go_on(group, now_ms, out)
            return
        self._rounds.store(group, value, out)
        leads = member_id == group.leader
        if joiner.waiter.version >= 9:
            roster = current_members(group) if leads else []
            response = join_response(group, member_id, roster, skip_assignment=leads)
        else:
            # A leader that cannot be told to skip the assignment must not learn that it leads.
            response = join_response(group, member_id, [])
            response.leader = former_leader or ""
        out.reply(joiner.waiter.ticket, response)

    def _keeps_its_share(self, group: ClassicGroup, member: ClassicMember, former_metadata: bytes) -> bool:
        return group.select_protocol() == group.protocol and same_subscription(
            group.protocol_type or "", former_metadata, member.metadata(group.protocol)
        )

    # --- SyncGroup ---

    def sync(self, ticket: Ticket, request: SyncGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        group = self._groups.get(request.group_id)
        code = self._check_sync(group, request)
        if code or group is None:
            out.reply(ticket, sync_error(code))
            return
        member = group.members[request.member_id]
        group.unsynced.discard(member.member_id)
        member.alive(now_ms)
        if group.state is GroupState.STABLE:
            out.reply(ticket, sync_response(group, member.assignment))
            return
        self._rounds.park_sync(group, member, Waiter(ticket, caller.version), now_ms, out)
        if member.member_id == group.leader:
            assignments = {share.member_id: share.assignment for share in request.assignments}
            self._rounds.hand_out(group, assignments, now_ms, out)

    def _check_sync(self, group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = group.check_member(request.member_id, request.group_instance_id)
        if code:
            return code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # --- Heartbeat ---

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now_ms: int, out: Decision) -> None:
        out.replies.append((ticket, HeartbeatResponse(error_code=self._heartbeat(request, now_ms))))

    def _heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        code = group.check_member(request.member_id, request.group_instance_id)
        if code:
            return code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        group.members[request.member_id].alive(now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # --- LeaveGroup ---

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        if not request.group_id:
            out.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        leaving = request.members if caller.version >= 3 else [MemberIdentity(member_id=request.member_id)]
        group = self._groups.get(request.group_id)
        before = 0 if group is None else len(group.members)
        answers = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._remove(group, identity, now_ms, out),
            )
            for identity in leaving
        ]
        if group is not None:
            if len(group.members) < before:
                self._rounds.go_on(group, now_ms, out)
            else:
                self._rounds.complete_if_all_joined(group, now_ms, out)
            self._forget_if_idle(group)
        if caller.version >= 3:
            out.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers))
        else:
            out.reply(ticket, LeaveGroupResponse(error_code=answers[0].error_code))

    def _remove(self, group: ClassicGroup, identity: MemberIdentity, now_ms: int, out: Decision) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id in group.pending:
            group.pending.remove(member_id)
            out.cancel((SESSION, group.group_id, member_id))
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            # An administrator knows the instance, not the id that its member happens to have.
            member_id = group.static_ids.get(instance_id, "")
        code = group.check_member(member_id, instance_id)
        if not code:
            self._rounds.drop(group, group.members[member_id], now_ms, out)
        return code

    # --- what happens without a request ---

    def abandon(self, ticket: Ticket) -> None:
        self._rounds.abandon(ticket)

    def on_timer(self, key: Hashable, now_ms: int, out: Decision) -> bool:
        """Whether the timer was one of ours."""
        match key:
            case (str(kind), str(group_id), *rest) if kind in {SESSION, JOIN, SYNC}:
                group = self._groups.get(group_id)
                if group is None:
                    return True
                if kind == SESSION:
                    self._rounds.on_session_timer(group, str(rest[0]), now_ms, out)
                elif kind == JOIN:
                    self._rounds.on_join_timer(group, now_ms, out)
                else:
                    self._rounds.on_sync_timer(group, now_ms, out)
                self._forget_if_idle(group)
                return True
            case _:
                return False

    def arm(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Members that come from a record, not from a request, get a whole session to show that they are alive."""
        for member in group.members.values():
            member.alive(now_ms)
            out.arm((SESSION, group.group_id, member.member_id), member.deadline_ms)
        # The limit was lowered, and not everybody will get in again; or the group was one of the newer protocol, and
        # what those had who spoke it is nobody's.
        if len(group.members) > self._config.max_size or (group.members and group.leader is None):
            self._rounds.go_on(group, now_ms, out)

    def dissolve(self, group: ClassicGroup, out: Decision) -> None:
        """Ends the group as a classic one; its tombstone goes before the records of what it becomes."""
        self._rounds.dissolve(group, out)
        del self._groups[group.group_id]

    def delete(self, group: ClassicGroup, out: Decision) -> None:
        assert group.deletable, f"{group.group_id} is not empty"
        if group.stored:
            out.record(GroupMetadataKey(group=group.group_id), None)
        else:
            del self._groups[group.group_id]

    def apply(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is None:
            self._groups.pop(key.group, None)
            return
        group = self._groups.get(key.group)
        if group is None:
            group = self._groups[key.group] = ClassicGroup(key.group)
        group.restore(value)

    def _forget_if_idle(self, group: ClassicGroup) -> None:
        """Nothing of the group was ever stored, and nobody is left who knows of it."""
        if group.deletable and not group.stored and not group.members:
            self._groups.pop(group.group_id, None)


def _protocols(request: JoinGroupRequest) -> dict[str, bytes]:
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Before version 1 there was one timeout for both."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _assignments(group: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}
