"""What the driver of a stream decides: where it begins, how far the next batch goes, which tasks read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.source.connections import run, shared_cluster
from tidelog.pipelines.source.log_view import LogView
from tidelog.pipelines.source.options import Place
from tidelog.pipelines.source.planning import resolve
from tidelog.pipelines.source.reading import RangePartition
from tidelog.pipelines.source.splits import OffsetRange, split

if TYPE_CHECKING:
    from tidelog.pipelines.source.options import SourceOptions
    from tidelog.pipelines.source.positions import Positions


class StreamPlanner:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._view = LogView(shared_cluster(options.consumer), options.consumer, options.subscription)

    def initial(self) -> Positions:
        return run(self._initial())

    async def _initial(self) -> Positions:
        partitions = await self._view.existing_partitions()
        return await resolve(
            self._options.starting or Place.LATEST, "startingOffsets", self._view, self._options, partitions
        )

    def latest(self, start: Positions, *, unlimited: bool) -> Positions:  # noqa: ARG002 - limits are to come
        return run(self._latest())

    async def _latest(self) -> Positions:
        return await self._view.latest(await self._view.partitions())

    def stop_at_what_there_is(self) -> None:
        pass

    def tasks(self, start: Positions, end: Positions) -> list[RangePartition]:
        return run(self._tasks(start, end))

    async def _tasks(self, start: Positions, end: Positions) -> list[RangePartition]:
        partitions = await self._view.partitions()
        ranges = [OffsetRange(at, start.get(at, 0), end[at]) for at in end]
        pieces = split(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(piece, partitions[piece.partition]) for piece in pieces]
