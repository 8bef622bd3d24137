"""What the driver of a stream decides: where it begins, how far the next batch goes, which tasks read it.

Spark asks for the latest offsets every few milliseconds while nothing comes. Brokers are asked less often the longer
that lasts, up to a fraction of what a batch takes anyway; for new topics and partitions, about once a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidelog.clock import SystemClock
from tidelog.pipelines.source.committing import GroupCommitter
from tidelog.pipelines.source.connections import OpenCluster, run
from tidelog.pipelines.source.limits import held_back, limit_by_bytes, share_out
from tidelog.pipelines.source.log_view import LogView
from tidelog.pipelines.source.losing import check_bounds, report_loss
from tidelog.pipelines.source.options import Place
from tidelog.pipelines.source.planning import resolve
from tidelog.pipelines.source.reading import to_tasks
from tidelog.pipelines.source.reconciling import created_anew, find_footing
from tidelog.pipelines.source.sampling import bytes_per_offset
from tidelog.pipelines.source.splits import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.clock import Clock
    from tidelog.pipelines.source.log_view import Partitions
    from tidelog.pipelines.source.options import SourceOptions
    from tidelog.pipelines.source.positions import Positions
    from tidelog.pipelines.source.reading import RangePartition
    from tidelog.types import TopicPartition

_REST_MAX_S: Final = 0.025
_REST_DOUBLINGS_MAX: Final = 5
_LOOK_FOR_PARTITIONS_S: Final = 1.0
_SHRUNK_IS_CERTAIN: Final = 5
"""Answers, some time apart, that a partition ends before what was read of it: a new leader may need a moment."""


class StreamPlanner:
    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._connections = OpenCluster(options.consumer)
        self._cluster = self._connections.cluster
        self._view = LogView(self._cluster, options.consumer, options.subscription)
        self._committer = GroupCommitter(options.consumer, options.group_id)
        self._known: Partitions = {}
        """Partitions as they were when their positions were taken, so that topics created anew are noticed."""
        self._found: Partitions = {}
        """Partitions as they were last heard of."""
        self._ends: Positions = {}
        self._looked_s = self._asked_s = float("-inf")
        self._idle = 0
        self._target: Positions | None = None
        """Where to stop, when the query is to end with what there is."""
        self._batch_s = float("-inf")
        """When the last batch was planned."""
        self._moved: dict[tuple[TopicPartition, int], int] = {}
        """Where reading goes on instead, after a loss."""
        self._checked = False
        self._density: dict[TopicPartition, float] = {}

    # Where to begin

    def initial(self) -> Positions:
        return run(self._initial())

    async def _initial(self) -> Positions:
        self._found = await self._view.existing_partitions()
        bound = self._options.starting or Place.LATEST
        starts = await resolve(bound, "startingOffsets", self._view, self._options, self._found)
        if bound is not Place.EARLIEST and bound is not Place.LATEST:
            earliest, latest = await self._view.earliest(self._found), await self._view.latest(self._found)
            starts, _ = check_bounds(starts, latest, earliest, latest, fail=self._options.fail_on_data_loss)
        self._known = dict(self._found)
        self._checked = True
        return starts

    def stop_at_what_there_is(self) -> None:
        run(self._look())
        self._target = dict(self._ends)

    # How far the next batch goes

    def latest(self, start: Positions, *, unlimited: bool) -> Positions:
        """Everything before `start` has been dealt with."""
        self._committer.note(start)
        end = run(self._latest(start, unlimited)) if self._target is not None or self._due() else start
        self._idle = self._idle + 1 if end == start else 0
        return end

    def _due(self) -> bool:
        rest_s = min(_REST_MAX_S, 0.001 * (1 << min(self._idle, _REST_DOUBLINGS_MAX)))
        return self._clock.monotonic() - self._asked_s >= rest_s

    async def _latest(self, start: Positions, unlimited: bool) -> Positions:
        await self._look()
        begins = await self._footing(start)
        ends = self._ends if self._target is None else self._target
        waiting = {at: max(0, ends.get(at, begin) - begin) for at, begin in begins.items()}
        if not unlimited:
            now_s, options = self._clock.monotonic(), self._options
            fewest = options.min_offsets if self._target is None else None
            unharmed = all(begins.get(at) == offset for at, offset in start.items())
            waited_s, longest_s = now_s - self._batch_s, options.max_delay_ms / 1000
            if unharmed and held_back(sum(waiting.values()), fewest, waited_s, longest_s):
                return start
            waiting = await self._limited(begins, waiting, turn=sum(start.values()))
        # A new partition counts from its first record on, so that an empty one makes no batch.
        end = {at: begin + waiting[at] for at, begin in begins.items() if waiting[at] or at in start}
        for at, begin in begins.items():
            if at in start and end[at] == start[at] != begin:
                end[at] = begin  # Spark would take it for no progress, so the way back is a step of its own
        if end != start:
            self._batch_s = self._clock.monotonic()
        return end

    async def _limited(
        self, begins: Positions, waiting: dict[TopicPartition, int], turn: int
    ) -> dict[TopicPartition, int]:
        options = self._options
        if options.max_bytes is not None:
            ranges = [OffsetRange(at, begins[at], begins[at] + count) for at, count in waiting.items() if count]
            self._density |= await bytes_per_offset(self._cluster, options.consumer, ranges, self._known)
            waiting = limit_by_bytes(waiting, self._density, options.max_bytes, turn)
        if options.max_offsets is not None:
            waiting = share_out(waiting, options.max_offsets, turn)
        return waiting

    async def _look(self) -> None:
        """Brings `_found` and `_ends` up to date."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s >= _LOOK_FOR_PARTITIONS_S or not self._found:
            self._found, ends = await asyncio.gather(self._view.partitions(), self._view.latest(self._found))
            self._looked_s = now_s
        else:
            ends = await self._view.latest(self._found)
        missing = self._found.keys() - ends.keys()
        if missing:
            # New ones have not been asked for yet; others vanished while they were.
            if missing & self._ends.keys():
                self._found = await self._view.partitions()
            ends |= await self._view.latest(self._found.keys() - ends.keys())
        self._ends = {at: ends[at] for at in self._found if at in ends}
        self._asked_s = now_s

    async def _footing(self, start: Positions) -> Positions:
        """Where reading goes on; losses are reported once each."""
        await self._give_time_to_leaders(start)
        found = {at: self._found[at] for at in self._ends}
        if self._target is not None:
            found = {at: topic_id for at, topic_id in found.items() if at in self._target or at in start}
        told = {at: topic_id for at, topic_id in found.items() if (at, start.get(at, -1)) not in self._moved}
        wanted = (told.keys() - start.keys()) | created_anew(told, self._known)
        earliest = await self._view.earliest(wanted if self._checked else told)
        self._checked = True
        footing = find_footing(
            {at: offset for at, offset in start.items() if at in told or at not in found},
            told,
            self._known,
            earliest,
            self._ends,
        )
        for loss in footing.losses:
            report_loss(loss, fail=self._options.fail_on_data_loss)
        begins = {at: self._moved[at, start.get(at, -1)] for at in found if at not in told} | footing.begins
        for at, begin in footing.begins.items():
            if begin != start.get(at):
                self._moved[at, start.get(at, -1)] = begin
        self._known = found
        self._moved = {(at, offset): to for (at, offset), to in self._moved.items() if start.get(at, -1) == offset}
        return begins

    async def _give_time_to_leaders(self, start: Positions) -> None:
        for attempt in range(_SHRUNK_IS_CERTAIN):
            anew = created_anew(self._found, self._known)
            if all(self._ends.get(at, offset) >= offset or at in anew for at, offset in start.items()):
                return
            await asyncio.sleep(self._cluster.backoff.delay_s(attempt))
            self._looked_s = float("-inf")
            await self._look()

    # Which tasks read it

    def tasks(self, start: Positions, end: Positions) -> list[RangePartition]:
        return run(self._tasks(start, end))

    async def _tasks(self, start: Positions, end: Positions) -> list[RangePartition]:
        if not end.keys() <= self._known.keys():
            # A batch that was planned before this process started.
            self._known = {**await self._view.partitions(), **self._known}
        begins = await self._begins(start, end)
        ranges = [OffsetRange(at, begins[at], offset) for at, offset in end.items() if at in begins]
        return to_tasks(ranges, self._options, self._known)

    async def _begins(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Positions:
        begins: Positions = {}
        anew: list[TopicPartition] = []
        for at, offset in end.items():
            if at not in self._known:
                first = start.get(at, 0)
                report_loss(
                    f"{at}: offsets {first} to {offset - 1} were to be read, but the partition does not exist any more",
                    fail=self._options.fail_on_data_loss,
                )
            elif (at, start.get(at, -1)) in self._moved:
                begins[at] = self._moved[at, start.get(at, -1)]
            elif at not in start or start[at] > offset:
                anew.append(at)
            else:
                begins[at] = start[at]
        return begins | await self._view.earliest(anew)

    def reported(self) -> Positions | None:
        """Where the partitions end, as last heard of: what a lag is measured against."""
        return self._ends or None

    def close(self) -> None:
        self._committer.close()
        self._connections.close()
