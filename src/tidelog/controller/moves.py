"""Moves partitions to other brokers, in a reign: by request, or by what Kafka's tools leave under `/admin`."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.controller import reassignment
from tidelog.controller.admin_nodes import decode_moves, decode_partitions
from tidelog.controller.transitions import PartitionChange, find, partitions_of
from tidelog.errors import BrokerError, ErrorCode
from tidelog.znodes import paths
from tidelog.znodes.errors import MultiError, NodeFormatError, NoNode
from tidelog.znodes.store import Delete

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.controller.image import PartitionImage
    from tidelog.controller.reign import Reign
    from tidelog.types import TopicPartition
    from tidelog.znodes.store import WatchEvent

logger = logging.getLogger(__name__)

Refusals = dict["TopicPartition", BrokerError]


class Moves:
    def __init__(self, reign: Reign) -> None:
        self._reign = reign
        self._by_node: set[TopicPartition] = set()
        """What `/admin/reassign_partitions` asks for and is not done yet. The node stays until then."""
        self._node_there = False

    async def load(self) -> None:
        """Goes on with moves that are under way, and looks at what was left under `/admin`."""
        await self.progress(
            [topic_partition for _topic, topic_partition, _partition in partitions_of(self._reign.state)]
        )
        await self._look_at_moves()
        await self._look_at_elections()

    async def alter(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> Refusals:
        """Begins moves, or cancels them where no replicas are given. Returns what was refused."""
        changes: list[PartitionChange] = []
        refused: Refusals = {}
        for topic_partition, target in wanted.items():
            try:
                change = self._altered(topic_partition, target, may_change_factor=may_change_factor)
            except BrokerError as error:
                refused[topic_partition] = error
            else:
                if change is not None:
                    changes.append(change)
        await self._reign.commit(changes)
        await self.progress([change.topic_partition for change in changes])
        return refused

    def _altered(
        self, topic_partition: TopicPartition, target: Sequence[int] | None, *, may_change_factor: bool
    ) -> PartitionChange | None:
        state = self._reign.state
        partition = find(state, topic_partition)
        if partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}")
        observers_of = partial(self._reign.observers_of, state.topics[topic_partition.topic])
        live = state.live(topic_partition)
        after: PartitionImage | None
        if target is None:
            after = reassignment.cancel(partition, live, observers_of)
        else:
            factor = len(reassignment.origin_of(partition))
            if not may_change_factor and len(target) != factor:
                raise BrokerError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{topic_partition} has {factor} replicas, and the request forbids to change their number",
                )
            after = reassignment.begin(partition, target, live, observers_of)
        return None if after is None else PartitionChange(topic_partition, partition, after)

    async def progress(self, candidates: Iterable[TopicPartition]) -> None:
        """Ends the moves whose new replicas are all in sync."""
        state = self._reign.state
        changes = []
        for topic_partition in candidates:
            partition = find(state, topic_partition)
            after = reassignment.completed(partition, state.live(topic_partition)) if partition else None
            if partition is not None and after is not None:
                changes.append(PartitionChange(topic_partition, partition, after))
        await self._reign.commit(changes)
        for change in changes:
            logger.info("%s has moved to brokers %s", change.topic_partition, list(change.partition.replicas))
        await self._clear_node()

    def under_way(self, wanted: Iterable[TopicPartition] | None) -> dict[TopicPartition, PartitionImage]:
        state = self._reign.state
        if wanted is None:
            wanted = (topic_partition for _topic, topic_partition, _partition in partitions_of(state))
        found = ((topic_partition, find(state, topic_partition)) for topic_partition in wanted)
        return {each: partition for each, partition in found if partition is not None and partition.reassigning}

    def _on_moves(self, _event: WatchEvent) -> None:
        self._reign.post(self._look_at_moves)

    async def _look_at_moves(self) -> None:
        path = paths.REASSIGN_PARTITIONS
        data = await self._read(path)
        if data is None:
            return
        try:
            moves = decode_moves(path, data)
        except NodeFormatError as error:
            logger.error("the moves that were asked for are ignored: %s", error)
            moves = {}
        refused = await self.alter(moves)
        for topic_partition, refusal in refused.items():
            logger.error("%s is not moved: %s", topic_partition, refusal)
        self._node_there = True
        self._by_node = set(moves) - set(refused)
        await self._clear_node()

    async def _clear_node(self) -> None:
        """Tools take the node's disappearance for the end of all moves in it."""
        if not self._node_there:
            return
        self._by_node = {each for each in self._by_node if self.under_way([each])}
        if not self._by_node:
            self._node_there = False
            await self._remove(paths.REASSIGN_PARTITIONS)

    def _on_elections(self, _event: WatchEvent) -> None:
        self._reign.post(self._look_at_elections)

    async def _look_at_elections(self) -> None:
        path = paths.PREFERRED_REPLICA_ELECTION
        data = await self._read(path)
        if data is None:
            return
        try:
            await self._reign.elect_preferred(decode_partitions(path, data))
        except NodeFormatError as error:
            logger.error("the elections that were asked for are ignored: %s", error)
        await self._remove(path)

    async def _read(self, path: str) -> bytes | None:
        """The data of a node that somebody may make, change or delete at any time; the watch is told."""
        znodes = self._reign.znodes
        watch = self._on_moves if path == paths.REASSIGN_PARTITIONS else self._on_elections
        if await znodes.exists(path, watch=watch) is None:
            return None
        try:
            data, _stat = await znodes.get(path)
        except NoNode:
            return None
        self._reign.check()
        return data

    async def _remove(self, path: str) -> None:
        try:
            await self._reign.ledger.write([[Delete(path)]])
        except MultiError as error:
            if not isinstance(error.cause, NoNode):
                raise
        self._reign.check()
