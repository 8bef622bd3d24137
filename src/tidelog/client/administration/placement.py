"""Which brokers hold and lead what: reassignments and elections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from tidelog.client.administration.asking import Asking, outcome_of
from tidelog.client.errors import check, error_code
from tidelog.client.groups.subscriptions import by_topic
from tidelog.client.outcomes import Outcomes
from tidelog.errors import ErrorCode
from tidelog.types import BrokerId, TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

_ELECTIONS = {"preferred": 0, "unclean": 1}


class Reassignment(NamedTuple):
    """A move that is under way."""

    replicas: tuple[BrokerId, ...]
    """All that hold the partition meanwhile."""
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    total: int
    moving: Mapping[TopicPartition, Reassignment]

    @property
    def done(self) -> int:
        return self.total - len(self.moving)


class PlacementAdmin(Asking):
    async def alter_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Outcomes[TopicPartition, None]:
        """Has partitions moved to these brokers, the preferred leader first; None stops a move and goes back.

        An outcome of None says that it has begun: `follow_reassignments` tells when it is over.
        """
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), brokers in replicas.items():
            wanted = None if brokers is None else list(brokers)
            topics.setdefault(topic, []).append(ReassignablePartition(partition_index=index, replicas=wanted))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._work_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[ReassignableTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        what = "reassigning partitions"
        reply = await self._ask_controller(what, request, AlterPartitionReassignmentsResponse, lambda r: [r.error_code])
        check(reply.error_code, reply.error_message, what)
        begun: Outcomes[TopicPartition, None] = Outcomes()
        for topic_reply in reply.responses:
            for answer in topic_reply.partitions:
                partition = TopicPartition(topic_reply.name, answer.partition_index)
                begun[partition] = outcome_of(answer.error_code, answer.error_message, str(partition), None)
        return begun

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Stops moves, all or those named; the partitions stay where they were."""
        chosen = await self.list_reassignments() if partitions is None else partitions
        return await self.alter_reassignments(dict.fromkeys(chosen)) if chosen else Outcomes()

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Moves that are under way, all or those of the partitions named."""
        topics = None
        if partitions is not None:
            named = by_topic(partitions)
            if not named:
                return {}
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=each) for name, each in named.items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self._work_ms, topics=topics)
        what = "listing reassignments"
        reply = await self._ask_controller(what, request, ListPartitionReassignmentsResponse, lambda r: [r.error_code])
        check(reply.error_code, reply.error_message, what)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(map(BrokerId, each.replicas)),
                tuple(map(BrokerId, each.adding_replicas)),
                tuple(map(BrokerId, each.removing_replicas)),
            )
            for topic in reply.topics
            for each in topic.partitions
        }

    async def follow_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, interval_s: float = 1.0
    ) -> AsyncIterator[ReassignmentProgress]:
        """How far moves have come, those of the partitions named or all that are under way now; ends when they do.

        async for progress in admin.follow_reassignments():
            print(f"{progress.done} of {progress.total}")
        """
        chosen = list(await self.list_reassignments()) if partitions is None else list(partitions)
        while True:
            moving = await self.list_reassignments(chosen)
            yield ReassignmentProgress(len(chosen), moving)
            if not moving:
                return
            await asyncio.sleep(interval_s)

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        kind: Literal["preferred", "unclean"] = "preferred",
    ) -> Outcomes[TopicPartition, bool]:
        """Has partitions, all or those named, led by their preferred replica, or (unclean) by any that lives, which
        loses records. False: nothing had to change."""
        if kind not in _ELECTIONS:
            raise ValueError(f"kind is {' or '.join(_ELECTIONS)}, not {kind!r}")
        named = None
        if partitions is not None:
            named = [TopicPartitions(topic=name, partitions=each) for name, each in by_topic(partitions).items()]
        request = ElectLeadersRequest(election_type=_ELECTIONS[kind], topic_partitions=named, timeout_ms=self._work_ms)
        what = "electing leaders"
        reply = await self._ask_controller(what, request, ElectLeadersResponse, lambda r: [r.error_code])
        check(reply.error_code, about=what)
        elected: Outcomes[TopicPartition, bool] = Outcomes()
        for topic in reply.replica_election_results:
            for result in topic.partition_result:
                partition = TopicPartition(topic.topic, result.partition_id)
                if error_code(result.error_code) == ErrorCode.ELECTION_NOT_NEEDED:
                    elected[partition] = False
                else:
                    elected[partition] = outcome_of(result.error_code, result.error_message, str(partition), True)
        return elected
