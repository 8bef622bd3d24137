"""Members of groups in both protocols, as little client as it takes to join, keep alive and follow a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.errors import ErrorCode
from tidelog.wire.codec import to_bytes
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.wire.stored.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

if TYPE_CHECKING:
    from bench.group_wire import Place

SESSION_MS = 45_000
REBALANCE_MS = 300_000
CLASSIC_INTERVAL_S = 3.0
CONSUMER_INTERVAL_S = 5.0
TIMEOUT_S = 120.0

_TRY_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


class GroupError(Exception):
    """The broker refused what a well-behaved member asked."""


class Member(Protocol):
    interval_s: float

    async def join(self) -> None:
        """Enter the group, or its next generation."""

    async def beat(self) -> ErrorCode:
        """One heartbeat; what the broker answered."""

    async def follow(self) -> None:
        """Do what the last heartbeat's answer asks for."""


class ClassicMember:
    """The first to join leads, and gives every member its share of the partitions in turn."""

    interval_s = CLASSIC_INTERVAL_S

    def __init__(self, place: Place, group: str, topic: str, partitions: int) -> None:
        self.member_id = ""
        self.generation = -1
        self.round = 0
        self.shares = 0
        """Bytes of the assignment it was given last."""
        self._place = place
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._heartbeat = bytearray()

    async def join(self) -> None:
        while True:
            joined = await self._joined()
            code = await self._synced(joined)
            if code is ErrorCode.NONE:
                break
            if code not in _TRY_AGAIN:
                raise GroupError(f"SyncGroup was answered {code.name}")
        beat = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.member_id)
        self._heartbeat = self._place.frame(beat)

    async def beat(self) -> ErrorCode:
        reply = await self._place.ask_again(self._heartbeat, HeartbeatRequest, HeartbeatResponse, TIMEOUT_S)
        return ErrorCode(reply.error_code)

    async def follow(self) -> None:
        await self.join()

    async def introduce(self) -> None:
        """Only get an id, which is the first step of joining."""
        reply = await self._place.ask(self._join_request(), JoinGroupResponse, TIMEOUT_S)
        if ErrorCode(reply.error_code) is not ErrorCode.MEMBER_ID_REQUIRED:
            raise GroupError(f"a stranger's JoinGroup was answered {ErrorCode(reply.error_code).name}")
        self.member_id = reply.member_id

    def _join_request(self) -> JoinGroupRequest:
        subscription = ConsumerProtocolSubscription(topics=[self._topic], user_data=b"%d" % self.round)
        metadata = (1).to_bytes(2, "big") + to_bytes(subscription, 1)
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    async def _joined(self) -> JoinGroupResponse:
        while True:
            reply = await self._place.ask(self._join_request(), JoinGroupResponse, TIMEOUT_S)
            code = ErrorCode(reply.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = reply.member_id
            elif code is ErrorCode.NONE:
                self.member_id, self.generation = reply.member_id, reply.generation_id
                return reply
            elif code not in _TRY_AGAIN:
                raise GroupError(f"JoinGroup was answered {code.name}")

    async def _synced(self, joined: JoinGroupResponse) -> ErrorCode:
        members = [member.member_id for member in joined.members]
        assignments = [
            SyncGroupRequestAssignment(member_id=member, assignment=self._share(number, len(members)))
            for number, member in enumerate(members)
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        reply = await self._place.ask(request, SyncGroupResponse, TIMEOUT_S)
        self.shares = len(reply.assignment)
        return ErrorCode(reply.error_code)

    def _share(self, number: int, members: int) -> bytes:
        mine = list(range(number, self._partitions, members))
        share = ConsumerProtocolAssignment(assigned_partitions=[AssignedTopic(topic=self._topic, partitions=mine)])
        return (1).to_bytes(2, "big") + to_bytes(share, 1)


class ConsumerMember:
    """The broker decides who gets what; the member gives up at once what it is told to."""

    interval_s = CONSUMER_INTERVAL_S

    def __init__(self, place: Place, group: str, member_id: str, topic: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: set[tuple[bytes, int]] = set()
        self._place = place
        self._group = group
        self._topic = topic
        self._changed = False
        self._heartbeat: bytearray | None = None

    async def join(self) -> None:
        self.epoch, self.owned = 0, set()
        while True:
            code = await self._exchange(
                ConsumerGroupHeartbeatRequest(
                    group_id=self._group,
                    member_id=self.member_id,
                    member_epoch=0,
                    rebalance_timeout_ms=REBALANCE_MS,
                    subscribed_topic_names=[self._topic],
                    topic_partitions=[],
                )
            )
            if code is ErrorCode.NONE:
                return
            if code not in _TRY_AGAIN:
                raise GroupError(f"the first ConsumerGroupHeartbeat was answered {code.name}")

    async def beat(self) -> ErrorCode:
        if self._changed:
            return await self._exchange(self._full())
        if self._heartbeat is None:
            self._heartbeat = self._place.frame(self._plain())
        reply = await self._place.ask_again(
            self._heartbeat, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, TIMEOUT_S
        )
        return self._take(reply)

    async def follow(self) -> None:
        if self._changed:
            await self.beat()

    def _plain(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self.member_id, member_epoch=self.epoch)

    def _full(self) -> ConsumerGroupHeartbeatRequest:
        """Says what it owns now, as a member does when that has changed."""
        by_topic: dict[bytes, list[int]] = {}
        for topic, partition in sorted(self.owned):
            by_topic.setdefault(topic, []).append(partition)
        request = self._plain()
        request.topic_partitions = [TopicPartitions(topic_id=t, partitions=p) for t, p in by_topic.items()]
        return request

    async def _exchange(self, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
        self._changed = False
        return self._take(await self._place.ask(request, ConsumerGroupHeartbeatResponse, TIMEOUT_S))

    def _take(self, reply: ConsumerGroupHeartbeatResponse) -> ErrorCode:
        code = ErrorCode(reply.error_code)
        if code is not ErrorCode.NONE:
            return code
        if reply.member_epoch != self.epoch:
            self.epoch = reply.member_epoch
            self._heartbeat = None
        if reply.assignment is not None:
            share = {
                (it.topic_id, partition) for it in reply.assignment.topic_partitions for partition in it.partitions
            }
            self._changed = share != self.owned
            self.owned = share
        return code
