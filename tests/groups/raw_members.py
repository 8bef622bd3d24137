"""Members that send exactly what a test tells them, over a connection of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.errors import ErrorCode
from tidelog.testing import RawClient, eventually
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from tidelog.wire.declare import Message

    M = TypeVar("M", bound=Message)

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, CONSUMER_HEARTBEAT, FIND, DESCRIBE, LIST = 9, 5, 4, 5, 9, 1, 4, 5, 5
"""The versions that are spoken here."""

COMMIT_FOR_A_TIME = 4

WITHIN_S = 60.0
RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class RawMember:
    def __init__(self, bootstrap: str, group: str, topic: str = "") -> None:
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.generation = -1
        self.rebalance_ms = 60_000
        self._client = RawClient(int(bootstrap.rpartition(":")[2]), timeout_s=WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def find_coordinator(self) -> None:
        """A broker makes the topic that groups live on when it is first asked for a coordinator."""

        def found() -> bool:
            request = FindCoordinatorRequest(coordinator_keys=[self.group])
            reply = self._client.call(request, FIND, FindCoordinatorResponse)
            return reply.coordinators[0].error_code == ErrorCode.NONE

        eventually(found, "a coordinator", within_s=WITHIN_S, every_s=0.1)

    # --- joining ---

    def join_request(
        self,
        *,
        session_ms: int = 60_000,
        protocol_type: str = "consumer",
        protocols: Mapping[str, bytes] = {"range": b""},
    ) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        )

    def introduce(self, request: JoinGroupRequest | None = None) -> ErrorCode:
        """The first step of joining, which only gives an id, or whatever else the broker answers."""
        reply = self._settled(request or self.join_request(), JOIN, JoinGroupResponse)
        self.member_id = reply.member_id
        return ErrorCode(reply.error_code)

    def send_join(self, request: JoinGroupRequest | None = None) -> int:
        return self._client.send(request or self.join_request(), JOIN)

    def receive_join(self, correlation_id: int) -> JoinGroupResponse:
        reply = self._client.receive(JoinGroupResponse, JOIN, correlation_id)
        if reply.error_code == ErrorCode.NONE:
            self.generation = reply.generation_id
        return reply

    def join(self, request: JoinGroupRequest | None = None) -> JoinGroupResponse:
        return self.receive_join(self.send_join(request))

    def comrades(self) -> int:
        """How many the group has, whether or not they have been told that they are in."""
        request = DescribeGroupsRequest(groups=[self.group])
        (group,) = self._client.call(request, DESCRIBE, DescribeGroupsResponse).groups
        return len(group.members)

    # --- the rest ---

    def send_sync(self, shares: Mapping[str, bytes] = {}, generation: int | None = None) -> int:
        return self._client.send(self._sync_request(shares, generation), SYNC)

    def receive_sync(self, correlation_id: int) -> SyncGroupResponse:
        return self._client.receive(SyncGroupResponse, SYNC, correlation_id)

    def sync(self, shares: Mapping[str, bytes] = {}, generation: int | None = None) -> SyncGroupResponse:
        return self.receive_sync(self.send_sync(shares, generation))

    def _sync_request(self, shares: Mapping[str, bytes], generation: int | None) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=at, assignment=share) for at, share in shares.items()],
        )

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
        )
        return ErrorCode(self._settled(request, HEARTBEAT, HeartbeatResponse).error_code)

    def leave(self) -> ErrorCode:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        reply = self._client.call(request, LEAVE, LeaveGroupResponse)
        return ErrorCode(reply.error_code or reply.members[0].error_code)

    def commit(self, offset: int, generation: int | None = None, retention_ms: int = -1) -> ErrorCode:
        """With a time to keep the commit for, as clients could say long ago, or without."""
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
                    ],
                )
            ],
        )

        def ask() -> ErrorCode | None:
            reply = self._client.call(request, COMMIT if retention_ms < 0 else COMMIT_FOR_A_TIME, OffsetCommitResponse)
            code = ErrorCode(reply.topics[0].partitions[0].error_code)
            return None if code in RETRIED else code

        return eventually(ask, "the coordinator to be ready", within_s=WITHIN_S, every_s=0.05)

    def listed(self) -> set[str]:
        reply = self._settled(ListGroupsRequest(), LIST, ListGroupsResponse)
        return {group.group_id for group in reply.groups}

    def report(
        self,
        epoch: int,
        *,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
    ) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat of the newer protocol; epoch 0 joins."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=pattern,
            server_assignor=assignor,
            topic_partitions=[] if epoch == 0 else None,
        )
        return self._settled(request, CONSUMER_HEARTBEAT, ConsumerGroupHeartbeatResponse)

    def _settled(self, request: Message, version: int, reply: type[M]) -> M:
        """The reply once the coordinator is there: until then clients are told to try again."""

        def ask() -> M | None:
            came = self._client.call(request, version, reply)
            return None if getattr(came, "error_code", 0) in RETRIED else came

        return eventually(ask, "the coordinator to be ready", within_s=WITHIN_S, every_s=0.05)

    def heartbeat_until(self, wanted: ErrorCode) -> bool:
        """Heartbeats until the broker answers so."""
        answered = f"a heartbeat to be answered {wanted.name}"
        return eventually(lambda: self.heartbeat() is wanted, answered, within_s=WITHIN_S)
