"""A few group coordinators that mirror their groups in one store, and a client of the store that looks on."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

from group_driver import FixedTopics, assignment, id_of, subscription
from registry_cases import SharedLog, look, until

from tidelog.broker.group_registry import GroupRegistry
from tidelog.clock import SystemClock
from tidelog.controller.image import OFFSETS_TOPIC
from tidelog.coordinators.coordinator import Coordinator
from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.groups.topics import Caller
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId, LeaderEpoch
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.znodes import nodes, paths

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from registry_cases import Node

    from tidelog.wire.declare import Message, Struct
    from tidelog.znodes.store import ZnodeStore

CLOCK = SystemClock()
TOPICS = FixedTopics(t=2)


class Broker:
    """A group coordinator with its registry."""

    def __init__(self, broker_id: int, znodes: ZnodeStore, partitions: int) -> None:
        self.broker_id = broker_id
        self.znodes = znodes
        self.knows_topics = True
        ids = count(1)
        self.coordinator: Coordinator[GroupShard] = Coordinator(
            OFFSETS_TOPIC,
            lambda: GroupShard(GroupConfig(initial_rebalance_delay_ms=0), lambda: f"id{next(ids)}"),
            lambda: partitions if self.knows_topics else None,
            CLOCK,
        )
        self.registry = GroupRegistry(
            znodes, broker_id, CLOCK, self.coordinator.partition_of, round_pause_s=0, retry_pause_s=0
        )
        self.coordinator.onlooker = self.registry
        self.registry.start()

    async def ask(self, group_id: str, request: Message, version: int) -> Struct:
        reply: asyncio.Future[Struct | BrokerError] = asyncio.get_running_loop().create_future()
        runtime = self.coordinator.shard_of(group_id)
        await until_true(lambda: runtime.active)
        runtime.ask(request, Caller(version, "client", "/1.2.3.4", TOPICS), reply.set_result)
        answer = await reply
        assert not isinstance(answer, BrokerError), answer
        return answer

    async def commit(self, group_id: str, partition: int, offset: int) -> None:
        entry = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", topic_id=id_of("t"), partitions=[entry])
        answer = await self.ask(group_id, OffsetCommitRequest(group_id=group_id, member_id="", topics=[topic]), 9)
        assert isinstance(answer, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    async def join_classic(self, group_id: str, share: dict[str, list[int]]) -> str:
        """A classic group of one member, which takes what it likes."""
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        joined = await self.ask(group_id, request, 3)
        assert isinstance(joined, JoinGroupResponse)
        shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment(share))]
        sync = SyncGroupRequest(
            group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id, assignments=shares
        )
        synced = await self.ask(group_id, sync, 3)
        assert isinstance(synced, SyncGroupResponse)
        assert synced.error_code == ErrorCode.NONE
        return joined.member_id

    async def leave_classic(self, group_id: str, member_id: str) -> None:
        answer = await self.ask(group_id, LeaveGroupRequest(group_id=group_id, member_id=member_id), 2)
        assert isinstance(answer, LeaveGroupResponse)

    async def beat(self, group_id: str, member_id: str, epoch: int = 0) -> int:
        """A heartbeat of a member of the newer protocol; its first one joins. Gives its epoch."""
        said: dict[str, Any] = {} if epoch else {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=["t"], **said
        )
        answer = await self.ask(group_id, request, 1)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return answer.member_epoch

    async def delete(self, group_id: str) -> None:
        answer = await self.ask(group_id, DeleteGroupsRequest(groups_names=[group_id]), 2)
        assert isinstance(answer, DeletableGroupResult)
        assert answer.error_code == ErrorCode.NONE

    async def stop(self) -> None:
        self.coordinator.close()
        await self.registry.stop()


class Cluster:
    """Brokers, logs that outlive them, and a client that only looks."""

    def __init__(self, open_session: Callable[[], Awaitable[ZnodeStore]], partitions: int = 1) -> None:
        self._open_session = open_session
        self.partitions = partitions
        self.logs = [SharedLog() for _ in range(partitions)]
        self.brokers: list[Broker] = []
        self.client: ZnodeStore

    async def open(self) -> None:
        self.client = await self._open_session()
        await self.client.create(paths.CONSUMERS, make_parents=True)
        for partition in range(self.partitions):
            await self.client.create(paths.partition_state(OFFSETS_TOPIC, partition), state(-1), make_parents=True)

    async def start(self, broker_id: int, *, leads: bool = True) -> Broker:
        broker = Broker(broker_id, await self._open_session(), self.partitions)
        self.brokers.append(broker)
        if leads:
            for partition in range(self.partitions):
                await self.elect(broker, partition)
        return broker

    async def elect(self, broker: Broker, partition: int = 0) -> None:
        await self.client.set(paths.partition_state(OFFSETS_TOPIC, partition), state(broker.broker_id))
        broker.coordinator.lead(partition, self.logs[partition])

    async def until(self, holds: Callable[[dict[str, Node]], bool]) -> None:
        await until(self.client, holds)

    async def until_group(self, group_id: str, holds: Callable[[dict[str, Node]], bool]) -> None:
        await until(self.client, holds, paths.group(group_id))

    async def until_offset(self, group_id: str, partition: int, offset: int) -> None:
        await self.until(lambda tree: tree.get(f"/{group_id}/offsets/t/{partition}", (b"", 0))[0] == b"%d" % offset)

    async def look(self) -> dict[str, Node]:
        return await look(self.client, paths.CONSUMERS)

    async def close(self) -> None:
        for broker in self.brokers:
            await broker.stop()


def state(leader: int) -> bytes:
    return nodes.PartitionState(BrokerId(leader), LeaderEpoch(0), (), 1).encode()


def owners(tree: dict[str, Node], group_id: str) -> dict[str, Node]:
    prefix = f"/{group_id}/owners/t/"
    return {path.removeprefix(prefix): node for path, node in tree.items() if path.startswith(prefix)}


async def until_true(holds: Callable[[], bool]) -> None:
    """Waits for what only needs turns of the loop."""
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")
