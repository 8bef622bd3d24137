"""All groups whose state is on one partition of `__consumer_offsets`: one place to ask, whatever kind a group is.

A group id belongs to a classic group, to a group of the newer protocol, or to nobody but offsets that somebody
committed under it. Requests are answered here or given to the kind of group they are for. Nothing here raises: every
request gets a reply, in this decision or in a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinators.decision import Decision
from tidelog.coordinators.groups import offset_requests
from tidelog.coordinators.groups.classic_group import ClassicGroup
from tidelog.coordinators.groups.classic_groups import ClassicGroups
from tidelog.coordinators.groups.describe import described, is_wanted, listed, missing
from tidelog.coordinators.groups.offsets import OffsetBook, bury
from tidelog.coordinators.groups.retention import expired
from tidelog.errors import ErrorCode
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest
from tidelog.wire.stored.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from tidelog.coordinators.decision import Ticket
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.topics import Caller, ClusterTopics
    from tidelog.wire.declare import Message

RETENTION: Final = "retention"

EXPIRED_AT_ONCE_MAX = 1000
"""Tombstones in one decision: they are one batch, and a batch has a limit. The rest follows at once."""


class GroupShard:
    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        """`new_id` makes the part of a member id that nobody else has."""
        self._config = config
        self._classic = ClassicGroups(config, new_id)
        self._offsets = OffsetBook()
        self._answers: dict[type[Message], Callable[[Ticket, Any, Caller, int, Decision], None]] = {
            HeartbeatRequest: self._heartbeat,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            JoinGroupRequest: self._classic.join,
            SyncGroupRequest: self._classic.sync,
            LeaveGroupRequest: self._classic.leave,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete,
            OffsetDeleteRequest: self._delete_offsets,
        }

    def handle(self, ticket: Ticket, request: Message, caller: Caller, now_ms: int) -> Decision:
        """Requests that may name several groups must name one of this shard; the reply is that group's part."""
        out = Decision()
        self._answers[type(request)](ticket, request, caller, now_ms, out)
        return out

    def abandon(self, ticket: Ticket) -> None:
        """Nobody waits for this reply any more."""
        self._classic.abandon(ticket)

    # --- records and timers ---

    def apply(self, key: Message, value: Message | None) -> None:
        """Takes in one record: just appended, or read from the log. The only way in which stored state changes."""
        match key, value:
            case OffsetCommitKey(), OffsetCommitValue() | None:
                self._offsets.apply(key, value)
            case GroupMetadataKey(), GroupMetadataValue() | None:
                self._classic.apply(key, value)

    def on_loaded(self, now_ms: int) -> Decision:
        out = Decision()
        for group in self._classic:
            self._classic.arm(group, now_ms, out)
        out.arm((RETENTION,), now_ms + self._config.offsets_retention_check_interval_ms)
        return out

    def on_timer(self, key: Hashable, now_ms: int) -> Decision:
        out = Decision()
        if key == (RETENTION,):
            self._expire(now_ms, out)
        else:
            self._classic.on_timer(key, now_ms, out)
        return out

    def on_topics_changed(self, _topics: ClusterTopics, _now_ms: int, deleted: Iterable[str] = ()) -> Decision:
        """`deleted` are topics that were deleted, not merely unknown: their offsets must not greet a namesake."""
        out = Decision()
        for topic in deleted:
            for group_id in self._offsets:
                for partition in self._offsets.topics(group_id).get(topic, ()):
                    bury(group_id, topic, partition, out)
        return out

    # --- members ---

    def _heartbeat(
        self, ticket: Ticket, request: HeartbeatRequest, _caller: Caller, now_ms: int, out: Decision
    ) -> None:
        self._classic.heartbeat(ticket, request, now_ms, out)

    # --- offsets ---

    def _commit(self, ticket: Ticket, request: OffsetCommitRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        code = self._check_commit(request, caller, now_ms)
        offset_requests.commit(ticket, request, caller, code, self._config, now_ms, out)

    def _check_commit(self, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> ErrorCode:
        member_id, generation = request.member_id, request.generation_id_or_member_epoch
        group = self._classic.get(request.group_id)
        if group is None:
            if generation < 0:
                return ErrorCode.NONE
            return ErrorCode.GROUP_ID_NOT_FOUND if caller.version >= 9 else ErrorCode.ILLEGAL_GENERATION
        code = group.check_commit(member_id, request.group_instance_id, generation)
        member = group.members.get(member_id)
        if not code and member is not None:
            member.alive(now_ms)
        return code

    def _fetch(self, ticket: Ticket, request: OffsetFetchRequest, caller: Caller, _now_ms: int, out: Decision) -> None:
        group = offset_requests.asked_group(request)
        out.reply(ticket, offset_requests.fetch(group, caller, self._offsets, require_stable=request.require_stable))

    def _delete_offsets(
        self, ticket: Ticket, request: OffsetDeleteRequest, caller: Caller, _now_ms: int, out: Decision
    ) -> None:
        group = self._classic.get(request.group_id)
        code = ErrorCode.NONE
        if group is None and request.group_id not in self._offsets:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and group.members and not group.uses_consumer_protocol:
            code = ErrorCode.NON_EMPTY_GROUP  # what such members read cannot be known
        if code:
            out.reply(ticket, OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[]))
            return
        offset_requests.delete(
            ticket,
            request,
            caller,
            self._offsets,
            (lambda _topic: False) if group is None else group.subscribed_to,
            out,
        )

    def _expire(self, now_ms: int, out: Decision) -> None:
        """Buries offsets that have expired, and groups that have neither members nor offsets any more."""
        retention_ms = self._config.offsets_retention_ms
        for group_id in {**dict.fromkeys(self._offsets), **dict.fromkeys(group.group_id for group in self._classic)}:
            group = self._classic.get(group_id)
            topics = self._offsets.topics(group_id)
            due = list(expired(topics, group, retention_ms, now_ms))
            left = sum(len(partitions) for partitions in topics.values()) - len(due)
            for topic, partition in due:
                bury(group_id, topic, partition, out)
            if group is not None and group.deletable and not left and not self._offsets.held(group_id):
                self._classic.delete(group, out)
            if len(out.records) >= EXPIRED_AT_ONCE_MAX:
                out.arm((RETENTION,), now_ms)
                return
        out.arm((RETENTION,), now_ms + self._config.offsets_retention_check_interval_ms)

    # --- administration ---

    def _describe(
        self, ticket: Ticket, request: DescribeGroupsRequest, caller: Caller, _now_ms: int, out: Decision
    ) -> None:
        (group_id,) = request.groups
        group = self._classic.get(group_id)
        if group is None and group_id in self._offsets:
            group = ClassicGroup(group_id)
        if group is not None:
            out.reply(ticket, described(group))
        else:
            out.reply(ticket, missing(group_id, caller.version, f"Group {group_id} not found."))

    def _list(self, ticket: Ticket, request: ListGroupsRequest, _caller: Caller, _now_ms: int, out: Decision) -> None:
        groups = [listed(group) for group in self._classic]
        groups += [listed(ClassicGroup(group_id)) for group_id in self._offsets if group_id not in self._classic]
        out.reply(
            ticket,
            ListGroupsResponse(
                error_code=ErrorCode.NONE, groups=[group for group in groups if is_wanted(group, request)]
            ),
        )

    def _delete(
        self, ticket: Ticket, request: DeleteGroupsRequest, _caller: Caller, _now_ms: int, out: Decision
    ) -> None:
        """Offsets go first: a batch that is cut in two must leave a smaller group, not offsets of none."""
        (group_id,) = request.groups_names
        group = self._classic.get(group_id)
        code = ErrorCode.NONE
        if group is None and group_id not in self._offsets:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif (group is not None and not group.deletable) or self._offsets.held(group_id):
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            for topic, partitions in self._offsets.topics(group_id).items():
                for partition in partitions:
                    bury(group_id, topic, partition, out)
            if group is not None:
                self._classic.delete(group, out)
        out.reply(ticket, DeletableGroupResult(group_id=group_id, error_code=code))
