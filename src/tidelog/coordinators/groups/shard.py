"""All groups whose state is on one partition of `__consumer_offsets`: one place to ask, whatever kind a group is.

A group id belongs to a classic group, to a group of the newer protocol, or to nobody but offsets that somebody
committed under it. Requests are answered here or given to the kind of group they are for. Nothing here raises: every
request gets a reply, in this decision or in a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.coordinators.decision import Decision
from tidelog.coordinators.groups import offset_requests
from tidelog.coordinators.groups.classic_group import ClassicGroup
from tidelog.coordinators.groups.classic_groups import ClassicGroups
from tidelog.coordinators.groups.consumer_groups import ConsumerGroups
from tidelog.coordinators.groups.describe import described, is_wanted, listed, missing
from tidelog.coordinators.groups.forgetting import Forgetting
from tidelog.coordinators.groups.offsets import OffsetBook
from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponseGroup
from tidelog.wire.messages.sync_group import SyncGroupRequest
from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tidelog.wire.stored.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from tidelog.coordinators.decision import Ticket, Transaction
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.topics import Caller, ClusterTopics
    from tidelog.wire.declare import Message, Struct


class GroupShard:
    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        """`new_id` makes the part of a member id that nobody else has."""
        self._config = config
        self._classic = ClassicGroups(config, new_id)
        self._consumer = ConsumerGroups(config, new_id, self._classic)
        self._offsets = OffsetBook()
        self._forgetting = Forgetting(config, self._classic, self._consumer, self._offsets)
        self._answers: dict[type[Struct], Callable[[Ticket, Any, Caller, int, Decision], None]] = {
            HeartbeatRequest: self._heartbeat,
            ConsumerGroupHeartbeatRequest: self._consumer.heartbeat,
            OffsetCommitRequest: self._commit,
            TxnOffsetCommitRequest: self._commit_in_transaction,
            OffsetFetchRequest: self._fetch,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            LeaveGroupRequest: self._leave,
            DescribeGroupsRequest: self._describe,
            ConsumerGroupDescribeRequest: self._describe_consumer,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete,
            OffsetDeleteRequest: self._delete_offsets,
        }

    def handle(self, ticket: Ticket, request: Struct, caller: Caller, now_ms: int) -> Decision:
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
            case _:
                self._consumer.apply(key, value)

    def apply_in_transaction(self, transaction: Transaction, key: Message, value: Message | None) -> None:
        """Only offsets are committed inside transactions."""
        match key, value:
            case OffsetCommitKey(), OffsetCommitValue() | None:
                self._offsets.hold(transaction.producer_id, key, value)

    def end_transaction(self, transaction: Transaction, *, committed: bool) -> None:
        self._offsets.end_transaction(transaction.producer_id, committed=committed)

    def on_loaded(self, now_ms: int) -> Decision:
        out = Decision()
        for group in self._classic:
            self._classic.arm(group, now_ms, out)
        self._consumer.on_loaded(now_ms, out)
        self._forgetting.begin(now_ms, out)
        return out

    def on_timer(self, key: Hashable, now_ms: int) -> Decision:
        """A timer of something that is gone meanwhile decides nothing."""
        out = Decision()
        for part in (self._classic, self._consumer, self._forgetting):
            if part.on_timer(key, now_ms, out):
                break
        return out

    def on_topics_changed(self, topics: ClusterTopics, now_ms: int, deleted: Iterable[str] = ()) -> Decision:
        """`deleted` are topics that were deleted, not merely unknown: their offsets must not greet a namesake."""
        out = Decision()
        self._consumer.on_topics_changed(topics, now_ms, out)
        self._forgetting.forget_topics(deleted, now_ms, out)
        return out

    # --- members ---

    def _heartbeat(
        self, ticket: Ticket, request: HeartbeatRequest, _caller: Caller, now_ms: int, out: Decision
    ) -> None:
        if request.group_id in self._consumer:
            self._consumer.classic_heartbeat(ticket, request, now_ms, out)
        else:
            self._classic.heartbeat(ticket, request, now_ms, out)

    def _join(self, ticket: Ticket, request: JoinGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        group = self._consumer.get(request.group_id)
        if group is not None and group.members:
            self._consumer.join(ticket, request, caller, now_ms, out)
            return
        if group is not None and not request.member_id:
            self._consumer.delete(request.group_id, out)  # nobody is left who minds that it becomes a classic one
        self._classic.join(ticket, request, caller, now_ms, out)

    def _sync(self, ticket: Ticket, request: SyncGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        groups = self._consumer if request.group_id in self._consumer else self._classic
        groups.sync(ticket, request, caller, now_ms, out)

    def _leave(self, ticket: Ticket, request: LeaveGroupRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        groups = self._consumer if request.group_id in self._consumer else self._classic
        groups.leave(ticket, request, caller, now_ms, out)

    # --- offsets ---

    def _commit(self, ticket: Ticket, request: OffsetCommitRequest, caller: Caller, now_ms: int, out: Decision) -> None:
        code = self._check_commit(request, caller, now_ms)
        offset_requests.commit(ticket, request, caller, code, self._config, now_ms, out)

    def _check_commit(self, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> ErrorCode:
        """Whether he may who commits. If so, he is alive."""
        group_id, member_id = request.group_id, request.member_id
        generation = request.generation_id_or_member_epoch
        group = self._classic.get(group_id)
        if group is not None:
            code = group.check_commit(member_id, request.group_instance_id, generation)
            member = group.members.get(member_id)
            if not code and member is not None:
                member.alive(now_ms)
            return code
        if group_id in self._consumer:
            code = self._consumer.check_commit(group_id, member_id, generation, caller.version)
            if not code:
                self._consumer.touch(group_id, member_id, now_ms)
            return code
        if generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if caller.version >= 9 else ErrorCode.ILLEGAL_GENERATION

    def _commit_in_transaction(
        self, ticket: Ticket, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int, out: Decision
    ) -> None:
        group_id, generation = request.group_id, request.generation_id
        whom = (request.member_id, request.group_instance_id, generation)
        group = self._classic.get(group_id)
        code = ErrorCode.NONE
        if group is not None:
            code = group.check_commit_in_transaction(*whom)
        elif group_id in self._consumer:
            code = self._consumer.check_commit_in_transaction(group_id, *whom)
        elif generation >= 0:
            code = ErrorCode.ILLEGAL_GENERATION
        offset_requests.commit_in_transaction(ticket, request, caller, code, self._config, now_ms, out)

    def _fetch(self, ticket: Ticket, request: OffsetFetchRequest, caller: Caller, _now_ms: int, out: Decision) -> None:
        group = offset_requests.asked_group(request)
        code = self._consumer.check_fetch(group.group_id, group.member_id, group.member_epoch)
        if code:
            out.reply(ticket, OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            return
        out.reply(ticket, offset_requests.fetch(group, caller, self._offsets, require_stable=request.require_stable))

    def _delete_offsets(
        self, ticket: Ticket, request: OffsetDeleteRequest, caller: Caller, _now_ms: int, out: Decision
    ) -> None:
        group_id = request.group_id
        group = self._classic.get(group_id)
        code = ErrorCode.NONE
        if not self._is_known(group_id):
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and group.members and not group.uses_consumer_protocol:
            code = ErrorCode.NON_EMPTY_GROUP  # what such members read cannot be known
        if code:
            out.reply(ticket, OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[]))
            return

        def subscribed_to(topic: str) -> bool:
            if group is not None:
                return group.subscribed_to(topic)
            return self._consumer.subscribed_to(group_id, topic)

        offset_requests.delete(ticket, request, caller, self._offsets, subscribed_to, self._config, out)

    # --- administration ---

    def _is_known(self, group_id: str) -> bool:
        return group_id in self._classic or group_id in self._consumer or group_id in self._offsets

    def _describe(
        self, ticket: Ticket, request: DescribeGroupsRequest, caller: Caller, _now_ms: int, out: Decision
    ) -> None:
        (group_id,) = request.groups
        group = self._classic.get(group_id)
        if group is not None:
            out.reply(ticket, described(group))
        elif group_id in self._consumer:
            out.reply(ticket, missing(group_id, caller.version, f"Group {group_id} is not a classic group."))
        elif group_id in self._offsets:
            out.reply(ticket, described(ClassicGroup(group_id)))
        else:
            out.reply(ticket, missing(group_id, caller.version, f"Group {group_id} not found."))

    def _describe_consumer(
        self, ticket: Ticket, request: ConsumerGroupDescribeRequest, _caller: Caller, _now_ms: int, out: Decision
    ) -> None:
        (group_id,) = request.group_ids
        out.reply(ticket, self._consumer.describe(group_id))

    def _list(self, ticket: Ticket, request: ListGroupsRequest, _caller: Caller, _now_ms: int, out: Decision) -> None:
        groups = [listed(group) for group in self._classic]
        groups += self._consumer.listed()
        groups += [
            listed(ClassicGroup(group_id))
            for group_id in self._offsets
            if group_id not in self._classic and group_id not in self._consumer
        ]
        wanted = [group for group in groups if is_wanted(group, request)]
        out.reply(ticket, ListGroupsResponse(error_code=ErrorCode.NONE, groups=wanted))

    def _delete(
        self, ticket: Ticket, request: DeleteGroupsRequest, _caller: Caller, now_ms: int, out: Decision
    ) -> None:
        (group_id,) = request.groups_names
        self._forgetting.delete_group(ticket, group_id, now_ms, out)
