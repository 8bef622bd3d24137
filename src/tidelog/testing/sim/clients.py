"""What simulated clients share: finding leaders and asking brokers, over the simulated network, as often as it takes.

Clients never crash and share no clock with brokers. Their requests get lost like any other message.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.types import TopicPartition
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.testing.sim.checker import Checker
    from tidelog.testing.sim.world import World
    from tidelog.wire.declare import Message
    from tidelog.wire.messages.metadata import MetadataResponse

REQUEST_TIMEOUT_S = 6.0
BACKOFF_S = 0.1
NO_LEADER = -1


class ClusterClient:
    def __init__(self, world: World, checker: Checker, name: str, brokers: Sequence[int]) -> None:
        self.world = world
        self.checker = checker
        self.name = name
        self.loop = world.new_loop(name)
        self.chance = world.chance.stream(name)
        self.topic_ids: dict[str, bytes] = {}
        self.controller = NO_LEADER
        self.stopping = False
        self._brokers = list(brokers)
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._newest_epochs: dict[TopicPartition, int] = {}
        self._send = world.network.sender(name, self.loop, "client", REQUEST_TIMEOUT_S)

    async def ask(self, broker_id: int, request: Message) -> Any:
        return await self._send(broker_id, request)

    async def back_off(self) -> None:
        await asyncio.sleep(BACKOFF_S * self.chance.uniform(0.5, 1.5))

    async def leader(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Who leads, as far as the client knows, and in which epoch; asks until somebody does."""
        while topic_partition not in self._leaders:
            await self.refresh([topic_partition.topic])
            if topic_partition not in self._leaders:
                await self.back_off()
        return self._leaders[topic_partition]

    def forget(self, topic_partition: TopicPartition) -> None:
        """Its leader is not there, or is none."""
        self._leaders.pop(topic_partition, None)

    async def refresh(self, topics: Sequence[str]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        try:
            reply: MetadataResponse = await self.ask(self.chance.choice(self._brokers), request)
        except PeerUnreachable:
            return
        self.controller = reply.controller_id
        for topic in reply.topics:
            if topic.error_code or topic.name is None:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            for part in topic.partitions:
                key = TopicPartition(topic.name, part.partition_index)
                # As real clients do: a broker that lives in the past must not lead us back there (KIP-320).
                if part.leader_epoch < self._newest_epochs.get(key, 0):
                    continue
                self._newest_epochs[key] = part.leader_epoch
                if part.leader_id != NO_LEADER:
                    self._leaders[key] = (part.leader_id, part.leader_epoch)

    async def create_topic(
        self, name: str, assignments: Sequence[Sequence[int]], settings: Mapping[str, str] = {}
    ) -> None:
        """Has a topic made, whoever is controller, and however often that has to be tried."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        while True:
            await self.refresh([])
            try:
                if self.controller != NO_LEADER:
                    reply = await self.ask(self.controller, request)
                    if reply.topics[0].error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                        return
                    self.world.note(self.name, f"topic {name}: {ErrorCode(reply.topics[0].error_code).name}")
            except PeerUnreachable:
                pass
            await self.back_off()
