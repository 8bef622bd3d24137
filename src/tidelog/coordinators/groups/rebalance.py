"""The rounds of classic groups: members gather, the generation begins, its division is handed out.

Everything that makes a group wait or go on is here; what requests ask for, and whether they may, is in
`classic_groups.py`. All waiting is bounded by a timer:

    ("session", group, member)   a member that is silent for its session timeout is dropped. Heartbeats only move the
                                 deadline in memory, the timer looks at it when it fires
    ("join", group)              members that did not join in time are left out of the generation
    ("sync", group)              members that joined but never asked for their share are dropped
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.coordinators.groups.classic_group import ClassicGroup, ClassicMember, GroupState, Waiter
from tidelog.errors import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.sync_group import SyncGroupResponse
from tidelog.wire.stored.classic_groups import GroupMetadataKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.decision import Decision, Ticket
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.wire.stored.classic_groups import GroupMetadataValue

SESSION: Final = "session"
JOIN: Final = "join"
SYNC: Final = "sync"

GROUP_VALUE_VERSION = 3
"""The newest before the flexible ones, which every Kafka tool can read."""

NEWCOMER_WAIT_MS = 300_000
"""A member whose first join is not answered in this time is told to try again: it may long be gone (KIP-394)."""

_MEMBER_OVERHEAD_BYTES = 64
"""What a stored member takes beside its strings and bytes, generously."""


class Rounds:
    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._parked: dict[Ticket, tuple[ClassicGroup, ClassicMember]] = {}

    # --- waiting ---

    def park_join(self, group: ClassicGroup, member: ClassicMember, waiter: Waiter, now_ms: int, out: Decision) -> None:
        self.end_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)  # the member asks a second time
        member.join = waiter
        group.joining += 1
        self._parked[waiter.ticket] = (group, member)

    def park_sync(self, group: ClassicGroup, member: ClassicMember, waiter: Waiter, now_ms: int, out: Decision) -> None:
        self.end_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), now_ms, out)
        member.sync = waiter
        self._parked[waiter.ticket] = (group, member)

    def end_join(self, group: ClassicGroup, member: ClassicMember, code: ErrorCode, now_ms: int, out: Decision) -> None:
        """Refuses the member's waiting join, if there is one."""
        waiter = self._unpark_join(group, member)
        if waiter is not None:
            member.alive(now_ms)  # the session stood still meanwhile
            out.reply(waiter.ticket, join_error(code, waiter.version, member.member_id))

    def end_sync(self, member: ClassicMember, response: SyncGroupResponse, now_ms: int, out: Decision) -> None:
        """Answers the member's waiting sync, if there is one."""
        waiter = member.sync
        if waiter is not None:
            member.sync = None
            del self._parked[waiter.ticket]
            member.alive(now_ms)
            out.reply(waiter.ticket, response)

    def abandon(self, ticket: Ticket) -> None:
        """Whoever waited is gone. The member may come back until its session ends."""
        parked = self._parked.get(ticket)
        if parked is None:
            return
        group, member = parked
        if member.join is not None and member.join.ticket == ticket:
            self._unpark_join(group, member)
        else:
            member.sync = None
            del self._parked[ticket]

    def _unpark_join(self, group: ClassicGroup, member: ClassicMember) -> Waiter | None:
        waiter = member.join
        if waiter is not None:
            member.join = None
            group.joining -= 1
            del self._parked[waiter.ticket]
        return waiter

    # --- the round ---

    def prepare(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Begins a round: from now on members are told to join again."""
        first = group.state is GroupState.EMPTY
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                self.end_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), now_ms, out)
        if not first:
            group.unsynced.clear()
            out.cancel((SYNC, group.group_id))
        group.enter(GroupState.PREPARING_REBALANCE)
        delay_ms = self._config.initial_rebalance_delay_ms
        if first and delay_ms:
            group.gathering = True
            group.gathering_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.newcomers = False
            out.arm((JOIN, group.group_id), now_ms + delay_ms)
        elif first or group.all_joined:
            self._complete(group, now_ms, out)
        else:
            out.arm((JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)

    def go_on(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """A member came, left or changed: a settled group begins a round, a gathering one may be complete."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(group, now_ms, out)
        elif group.state is not GroupState.EMPTY or group.members:
            self.prepare(group, now_ms, out)

    def complete_if_all_joined(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Somebody is not waited for any more."""
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined and not group.gathering:
            self._complete(group, now_ms, out)

    def _complete(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Ends the gathering with those who are there; static members keep their place until their session ends."""
        group.gathering = False
        missing = [member for member in group.members.values() if member.join is None and member.instance_id is None]
        for member in missing:
            self.drop(group, member, now_ms, out)
        if not group.members:
            out.cancel((JOIN, group.group_id))
            self.store(group, group.deserted(now_ms), out)
        elif not group.elect_joined_leader():
            # Only static members are left, and none is here: there is nobody to tell of a generation.
            out.arm((JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)
        else:
            out.cancel((JOIN, group.group_id))
            group.begin_generation()
            group.enter(GroupState.COMPLETING_REBALANCE)
            self._announce(group, now_ms, out)
            out.arm((SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)

    def _announce(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        roster = current_members(group)
        for member in group.members.values():
            waiter = self._unpark_join(group, member)
            if waiter is None:
                continue
            member.newcomer_until_ms = None
            member.alive(now_ms)
            group.unsynced.add(member.member_id)
            out.reply(
                waiter.ticket,
                join_response(group, member.member_id, roster if member.member_id == group.leader else []),
            )

    def hand_out(self, group: ClassicGroup, assignments: Mapping[str, bytes], now_ms: int, out: Decision) -> None:
        """The leader has divided the partitions: stores that, and answers all who wait for their share."""
        value = group.divided(assignments, now_ms)
        if not self.fits(value):
            # Kafka answers the same, and lets the members try again.
            for member in group.members.values():
                self.end_sync(member, sync_error(ErrorCode.UNKNOWN_SERVER_ERROR), now_ms, out)
            self.prepare(group, now_ms, out)
            return
        self.store(group, value, out)
        for member in group.members.values():
            if member.sync is not None:
                self.end_sync(member, sync_response(group, assignments.get(member.member_id, b"")), now_ms, out)

    def fits(self, value: GroupMetadataValue) -> bool:
        """Whether the record can be appended. An append that fails would cost all groups of the shard a reload."""
        return _stored_bytes(value) <= self._config.record_bytes_max

    def store(self, group: ClassicGroup, value: GroupMetadataValue, out: Decision) -> None:
        out.record(GroupMetadataKey(group=group.group_id), value, GROUP_VALUE_VERSION)

    def drop(self, group: ClassicGroup, member: ClassicMember, now_ms: int, out: Decision) -> None:
        """Takes the member out of the group. What that means for the group is the caller's next question."""
        self.end_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID, now_ms, out)
        self.end_sync(member, sync_error(ErrorCode.UNKNOWN_MEMBER_ID), now_ms, out)
        group.remove(member)
        out.cancel((SESSION, group.group_id, member.member_id))

    def dissolve(self, group: ClassicGroup, out: Decision) -> None:
        """The group goes on as one of the newer protocol: whoever waits is told to join again, no timer fires."""
        for member in group.members.values():
            # No session goes on here, so the time does not matter.
            self.end_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, 0, out)
            self.end_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), 0, out)
        for member_id in (*group.members, *sorted(group.pending)):
            out.cancel((SESSION, group.group_id, member_id))
        out.cancel((JOIN, group.group_id))
        out.cancel((SYNC, group.group_id))
        if group.stored:
            out.record(GroupMetadataKey(group=group.group_id), None)

    # --- timers ---

    def on_join_timer(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.gathering and group.newcomers and group.gathering_left_ms:
            delay_ms = min(self._config.initial_rebalance_delay_ms, group.gathering_left_ms)
            group.gathering_left_ms -= delay_ms
            group.newcomers = False
            out.arm((JOIN, group.group_id), now_ms + delay_ms)
            return
        self._complete(group, now_ms, out)

    def on_sync_timer(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        missing = [member for member in group.members.values() if member.member_id in group.unsynced]
        if missing:
            for member in missing:
                self.drop(group, member, now_ms, out)
            self.prepare(group, now_ms, out)

    def on_session_timer(self, group: ClassicGroup, member_id: str, now_ms: int, out: Decision) -> None:
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending:
                group.pending.remove(member_id)
                self.complete_if_all_joined(group, now_ms, out)
            return
        given_up = member.newcomer_until_ms is not None and now_ms >= member.newcomer_until_ms
        if member.waits and not given_up:
            member.alive(now_ms)
        if now_ms >= member.deadline_ms or given_up:
            self.drop(group, member, now_ms, out)
            self.go_on(group, now_ms, out)
        else:
            out.arm((SESSION, group.group_id, member_id), member.deadline_ms)


def join_error(code: ErrorCode, version: int, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def join_response(
    group: ClassicGroup, member_id: str, roster: list[JoinGroupResponseMember], *, skip_assignment: bool = False
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=roster,
    )


def current_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """What the leader needs to know to divide the partitions."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    ]


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def _stored_bytes(value: GroupMetadataValue) -> int:
    """About how long the record will be, and rather too long than too short."""
    return sum(
        _MEMBER_OVERHEAD_BYTES
        + 4 * (len(member.member_id) + len(member.client_id) + len(member.client_host))
        + 4 * len(member.group_instance_id or "")
        + len(member.subscription)
        + len(member.assignment)
        for member in value.members
    )
