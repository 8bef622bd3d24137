"""Writes what the controller has decided: in bulk, several transactions under way at once, each behind the fence.

Operations that belong together are given as one unit and stay in one transaction. What a crash leaves between units is
mended by the next controller when it loads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.types import BrokerId, LeaderEpoch
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import BadVersion, MultiError, NoNode
from tidelog.znodes.store import Create, Operation, SetData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tidelog.controller.claim import Claim
    from tidelog.controller.image import PartitionImage, TopicImage
    from tidelog.controller.transitions import PartitionChange
    from tidelog.types import TopicPartition
    from tidelog.znodes.store import ZnodeStore

    Unit = Sequence[Operation]

OPERATIONS_PER_MULTI = 300
"""One by one, znode writes are what makes a cluster slow; all in one could exceed what a server takes."""
BYTES_PER_MULTI = 512 << 10
_OPERATION_OVERHEAD_BYTES = 128


class Deposed(Exception):  # noqa: N818 - named for the state of things
    """Another broker is the controller by now: nothing was written."""


class Ledger:
    def __init__(self, znodes: ZnodeStore, claimed: Claim, in_flight_max: int) -> None:
        self._znodes = znodes
        self._claim = claimed
        self._in_flight_max = in_flight_max

    async def write(self, units: Iterable[Unit]) -> None:
        """Raises Deposed, or a ZnodeError after which it is not known what was written."""
        lots = list(_lots(units))
        for start in range(0, len(lots), self._in_flight_max):
            window = [self._write_lot(lot) for lot in lots[start : start + self._in_flight_max]]
            for failure in await asyncio.gather(*window, return_exceptions=True):
                if failure is not None:
                    raise failure

    async def confirm(self) -> None:
        """Raises Deposed if another broker is the controller by now. What is read afterwards is not older than this."""
        await self._write_lot([])

    async def _write_lot(self, lot: Unit) -> None:
        try:
            await self._znodes.multi([self._claim.fence, *lot])
        except MultiError as error:
            if error.index == 0 and isinstance(error.cause, (BadVersion, NoNode)):
                raise Deposed from error
            raise

    def state_node(self, partition: PartitionImage) -> bytes:
        return nodes.PartitionState(
            BrokerId(partition.leader),
            LeaderEpoch(partition.leader_epoch),
            partition.isr,
            self._claim.epoch,
            partition.recovering,
        ).encode()

    def birth(self, topic_partition: TopicPartition, partition: PartitionImage) -> list[Operation]:
        """The first state of a partition."""
        name, number = topic_partition
        state = Create(paths.partition_state(name, number), self.state_node(partition))
        return [Create(paths.partition(name, number)), state]

    def changes(self, changes: Iterable[PartitionChange], topics: Mapping[str, TopicImage]) -> list[Unit]:
        """The units that write changed partitions, and the replicas of topics of which some have moved."""
        units: list[Unit] = []
        moved: dict[str, dict[int, PartitionImage]] = {}
        first_of: dict[str, int] = {}
        for change in changes:
            before, after = change.before, change.partition
            assert before is not None
            if after.partition_epoch == before.partition_epoch:
                continue  # only what is not stored differs
            name, number = change.topic_partition
            if change.moves_replicas:
                moved.setdefault(name, {})[number] = after
                first_of.setdefault(name, len(units))
            state = self.state_node(after)
            units.append([SetData(paths.partition_state(name, number), state, before.partition_epoch)])
        for name, partitions in moved.items():
            topic = topics[name]
            whole = [partitions.get(number, partition) for number, partition in enumerate(topic.partitions)]
            at = first_of[name]
            units[at] = [SetData(paths.topic(name), assignment_node(topic, whole)), *units[at]]
        return units


def assignment_node(topic: TopicImage, partitions: Sequence[PartitionImage]) -> bytes:
    return nodes.TopicAssignment(
        topic.topic_id,
        {number: partition.replicas for number, partition in enumerate(partitions)},
        {number: partition.adding for number, partition in enumerate(partitions) if partition.adding},
        {number: partition.removing for number, partition in enumerate(partitions) if partition.removing},
    ).encode()


def _lots(units: Iterable[Unit]) -> Iterator[list[Operation]]:
    lot: list[Operation] = []
    size = 0
    for unit in units:
        unit_size = sum(map(_size, unit))
        if lot and (len(lot) + len(unit) > OPERATIONS_PER_MULTI or size + unit_size > BYTES_PER_MULTI):
            yield lot
            lot, size = [], 0
        lot.extend(unit)
        size += unit_size
    if lot:
        yield lot


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, (Create, SetData)) else b""
    return len(operation.path) + len(data) + _OPERATION_OVERHEAD_BYTES
