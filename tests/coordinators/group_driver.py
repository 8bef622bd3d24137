"""Runs a GroupShard as the runtime does, with a clock that stands still until it is moved."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.coordinators.decision import LoadedBatch, Transaction
from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.groups.topics import Caller
from tidelog.coordinators.runtime import take_in
from tidelog.errors import ErrorCode
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.declare import Message
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.wire.stored.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from tidelog.coordinators.decision import Decision, StoredRecord, Ticket
    from tidelog.wire.declare import Struct

S = TypeVar("S")

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class FixedTopics:
    """The topics of a cluster, by name with their number of partitions."""

    def __init__(self, **partitions: int) -> None:
        self.counts = dict(partitions)

    def partitions(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def topic_id(self, topic: str) -> bytes | None:
        return id_of(topic) if topic in self.counts else None

    def name(self, topic_id: bytes) -> str | None:
        return next((name for name in self.counts if id_of(name) == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.counts.keys()

    def racks(self, topic: str, partition: int) -> Iterable[str]:
        assert 0 <= partition < self.counts[topic]
        return ()


def id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b"\1")[:16]


def subscription(*topics: str, version: int = 1, owned: Mapping[str, list[int]] | None = None) -> bytes:
    """What a consumer says in its JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[TopicPartition(topic=name, partitions=numbers) for name, numbers in (owned or {}).items()],
    )
    return version.to_bytes(2, "big") + to_bytes(message, version)


def assignment(partitions: Mapping[str, list[int]]) -> bytes:
    """What a leader gives to a consumer."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic=name, partitions=numbers) for name, numbers in partitions.items()]
    )
    return b"\0\1" + to_bytes(message, 1)


class GroupDriver:
    """Every record goes through its bytes before it is applied, every reply through those of its version."""

    def __init__(self, config: GroupConfig | None = None, **partitions: int) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.topics = FixedTopics(**(partitions or {"t": 4}))
        self._ids = count(1)
        self.shard = self.new_shard()
        self.now_ms = 1_000_000
        self.log: list[StoredRecord] = []
        """What counts at once."""
        self.history: list[LoadedBatch] = []
        """What was stored, in transactions or not, and the markers that ended those."""
        self.batches: list[int] = []
        """How many bytes of keys and values each append had."""
        self.replies: dict[Ticket, Struct] = {}
        self.asked: dict[Ticket, int] = {}
        """Tickets of all requests, with the version they came in."""
        self.requests: dict[Ticket, Message] = {}
        self._tickets = count(1)
        self._timers: dict[Hashable, int] = {}
        self._due: list[tuple[int, int, Hashable]] = []
        self._order = count()
        self.perform(self.shard.on_loaded(self.now_ms))

    def new_shard(self) -> GroupShard:
        return GroupShard(self.config, lambda: f"id{next(self._ids)}")

    # --- what the runtime does ---

    def ask(self, request: Message, version: int, client_id: str = "client") -> Ticket:
        ticket = next(self._tickets)
        self.asked[ticket] = version
        self.requests[ticket] = request
        caller = Caller(version, client_id, "/1.2.3.4", self.topics)
        self.perform(self.shard.handle(ticket, request, caller, self.now_ms))
        return ticket

    def perform(self, decision: Decision) -> None:
        if decision.records:
            self.batches.append(sum(map(stored_bytes, decision.records)))
            if decision.transaction is None:
                self.log += decision.records
            self._store(LoadedBatch([through_bytes(record) for record in decision.records], decision.transaction))
        for timer in decision.timers:
            if timer.at_ms is None:
                self._timers.pop(timer.key, None)
            else:
                self._timers[timer.key] = timer.at_ms
                heapq.heappush(self._due, (timer.at_ms, next(self._order), timer.key))
        for ticket, reply in decision.replies:
            self.deliver(ticket, reply)

    def _store(self, batch: LoadedBatch) -> None:
        self.history.append(batch)
        take_in(self.shard, batch)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The transaction's marker is appended."""
        self._store(LoadedBatch((), Transaction(producer_id, 0), committed))

    def deliver(self, ticket: Ticket, reply: Struct) -> None:
        assert ticket not in self.replies, "answered twice"
        if isinstance(reply, Message):
            to_bytes(reply, self.asked[ticket])
        self.replies[ticket] = reply

    def advance(self, by_ms: int) -> None:
        """Lets time pass; timers fire at their times."""
        end_ms = self.now_ms + by_ms
        while self._due and self._due[0][0] <= end_ms:
            at_ms, _order, key = heapq.heappop(self._due)
            if self._timers.get(key) == at_ms:
                del self._timers[key]
                self.now_ms = max(self.now_ms, at_ms)
                self.perform(self.shard.on_timer(key, self.now_ms))
        self.now_ms = end_ms

    @property
    def timers(self) -> Mapping[Hashable, int]:
        return self._timers

    def reload(self) -> None:
        """The coordinator is lost with all it knew, and another one reads the log."""
        self.shard = self.new_shard()
        self._timers.clear()
        self._due.clear()
        for batch in self.history:
            take_in(self.shard, batch)
        self.perform(self.shard.on_loaded(self.now_ms))

    def reply(self, ticket: Ticket, expected: type[S]) -> S:
        reply = self.replies[ticket]
        assert isinstance(reply, expected), reply
        return reply

    def waits(self, ticket: Ticket) -> bool:
        return ticket not in self.replies

    # --- requests, in short ---

    def join(
        self,
        group_id: str,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
    ) -> Ticket:
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered.items()],
        )
        return self.ask(request, version, client_id)

    def joined(self, ticket: Ticket) -> JoinGroupResponse:
        return self.reply(ticket, JoinGroupResponse)

    def enter(self, group_id: str, **options: Any) -> tuple[str, Ticket]:
        """Joins as a dynamic member does: asks for an id, and comes back with it."""
        first = self.joined(self.join(group_id, **options))
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(group_id, first.member_id, **options)

    def sync(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        version: int = 5,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Ticket:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=share)
                for name, share in (assignments or {}).items()
            ],
        )
        return self.ask(request, version)

    def synced(self, ticket: Ticket) -> SyncGroupResponse:
        return self.reply(ticket, SyncGroupResponse)

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return self.reply(self.ask(request, 4), HeartbeatResponse).error_code

    def leave(self, group_id: str, *members: tuple[str, str | None]) -> LeaveGroupResponse:
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members],
        )
        return self.reply(self.ask(request, 5), LeaveGroupResponse)

    def leave_alone(self, group_id: str, member_id: str) -> int:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
        return self.reply(self.ask(request, 2), LeaveGroupResponse).error_code

    def commit(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
        version: int = 9,
        retention_ms: int = -1,
    ) -> OffsetCommitResponse:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), offset in offsets.items():
            entry = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, topic_id=id_of(topic), partitions=[]))
            entry.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        return self.reply(self.ask(request, version), OffsetCommitResponse)

    def commit_in_transaction(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        producer_id: int = 77,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
        version: int = 5,
    ) -> list[int]:
        """The answers, in the order of the offsets if those are ordered by topic."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (topic, partition), offset in offsets.items():
            entry = topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic, partitions=[]))
            entry.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id="mine",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=list(topics.values()),
        )
        response = self.reply(self.ask(request, version), TxnOffsetCommitResponse)
        return [partition.error_code for topic in response.topics for partition in topic.partitions]

    def fetch(
        self,
        group_id: str,
        wanted: Mapping[str, list[int]] | None = None,
        *,
        version: int = 9,
        require_stable: bool = False,
    ) -> OffsetFetchResponseGroup:
        topics = (
            None
            if wanted is None
            else [
                OffsetFetchRequestTopics(name=name, topic_id=id_of(name), partition_indexes=numbers)
                for name, numbers in wanted.items()
            ]
        )
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        return self.reply(self.ask(request, version), OffsetFetchResponseGroup)

    def offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        """All that the group has committed."""
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in self.fetch(group_id).topics
            for partition in topic.partitions
        }

    def describe(self, group_id: str, version: int = 6) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group_id])
        return self.reply(self.ask(request, version), DescribedGroup)

    def state(self, group_id: str) -> str:
        return self.describe(group_id, 5).group_state

    def listed(self, states: list[str] | None = None, types: list[str] | None = None) -> dict[str, tuple[str, str]]:
        request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
        response = self.reply(self.ask(request, 5), ListGroupsResponse)
        return {group.group_id: (group.group_state, group.group_type) for group in response.groups}

    def delete(self, group_id: str) -> int:
        return self.reply(self.ask(DeleteGroupsRequest(groups_names=[group_id]), 2), DeletableGroupResult).error_code

    # --- whole rounds ---

    def settle(self, group_id: str, joins: Mapping[str, Ticket], **options: Any) -> int:
        """Has every member sync after its join was answered; each is assigned its own name. Gives the generation."""
        answers = {member_id: self.joined(ticket) for member_id, ticket in joins.items()}
        assert {answer.error_code for answer in answers.values()} == {ErrorCode.NONE}
        leader = next(iter(answers.values())).leader
        generation = answers[leader].generation_id
        shares = {member.member_id: member.member_id.encode() for member in answers[leader].members}
        tickets = [
            self.sync(group_id, member_id, generation, shares if member_id == leader else {}, **options)
            for member_id in joins
        ]
        assert all(self.synced(ticket).error_code == ErrorCode.NONE for ticket in tickets)
        assert self.state(group_id) == "Stable"
        return generation

    def settle_with_assignment(
        self, group_id: str, leader: str, partitions: Mapping[str, list[int]], *followers: str
    ) -> int:
        """Another generation, in which the leader takes all the partitions. Gives the generation."""
        joins = {member_id: self.join(group_id, member_id) for member_id in (leader, *followers)}
        generation = self.joined(joins[leader]).generation_id
        shares = {leader: assignment(partitions), **{member_id: assignment({}) for member_id in followers}}
        for member_id in joins:
            assert self.synced(self.sync(group_id, member_id, generation, shares)).error_code == ErrorCode.NONE
        return generation

    def stable_group(self, group_id: str = "g", size: int = 1, **options: Any) -> tuple[list[str], int]:
        """A group of dynamic members that has settled. Its first member leads."""
        joins: dict[str, Ticket] = {}
        for _ in range(size):
            member_id, ticket = self.enter(group_id, **options)
            joins = {other: self.join(group_id, other, **options) for other in joins}
            joins[member_id] = ticket
        return list(joins), self.settle(group_id, joins)


def through_bytes(record: StoredRecord) -> tuple[Message, Message | None]:
    key = decode(type(record.key), to_bytes(record.key, record.key_version), record.key_version)
    if record.value is None:
        return key, None
    encoded = to_bytes(record.value, record.value_version)
    return key, decode(type(record.value), encoded, record.value_version)


def stored_bytes(record: StoredRecord) -> int:
    value = b"" if record.value is None else to_bytes(record.value, record.value_version)
    return len(to_bytes(record.key, record.key_version)) + len(value)
