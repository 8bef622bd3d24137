"""A simulated operator: moves partitions to other brokers and leaders back to where they belong, while things go wrong.

Each request is made once. Whether it was heard is not known, as with a real one that times out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import PeerUnreachable
from tidelog.testing.sim.clients import NO_LEADER, ClusterClient
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest

if TYPE_CHECKING:
    from tidelog.types import TopicPartition
    from tidelog.wire.declare import Message


class Operator(ClusterClient):
    async def move(self, topic_partition: TopicPartition, replicas: list[int] | None) -> None:
        """To these brokers; None cancels a move that is under way."""
        part = ReassignablePartition(partition_index=topic_partition.partition, replicas=replicas)
        topic = ReassignableTopic(name=topic_partition.topic, partitions=[part])
        self.world.note(self.name, f"moves {topic_partition} to {replicas}")
        await self._order(AlterPartitionReassignmentsRequest(topics=[topic]))

    async def prefer(self) -> None:
        """Has all leaders go back to the first of their replicas."""
        self.world.note(self.name, "has preferred leaders elected")
        await self._order(ElectLeadersRequest(election_type=0, topic_partitions=None))

    async def _order(self, request: Message) -> None:
        await self.refresh([])
        if self.controller == NO_LEADER:
            return
        try:
            await self.ask(self.controller, request)
        except PeerUnreachable:
            self.world.note(self.name, "heard nothing")
