"""What the driver of a stream decides: where it begins, how far the next batch goes, which tasks read it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.clock import SystemClock
from tidelog.pipelines.source.committing import GroupCommitter
from tidelog.pipelines.source.connections import OpenCluster, run
from tidelog.pipelines.source.limits import held_back, limit_by_bytes, share_out
from tidelog.pipelines.source.log_view import LogView
from tidelog.pipelines.source.losing import check_bounds, report_foreign, report_loss
from tidelog.pipelines.source.marks import Mark
from tidelog.pipelines.source.options import Place
from tidelog.pipelines.source.outlook import Outlook
from tidelog.pipelines.source.planning import resolve
from tidelog.pipelines.source.reading import to_tasks
from tidelog.pipelines.source.reconciling import created_anew, find_footing
from tidelog.pipelines.source.sampling import bytes_per_offset
from tidelog.pipelines.source.splits import OffsetRange

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.pipelines.source.log_view import Partitions
    from tidelog.pipelines.source.options import SourceOptions
    from tidelog.pipelines.source.positions import Positions
    from tidelog.pipelines.source.reading import RangePartition
    from tidelog.types import TopicPartition

_LOOKS_AGAIN: Final = 5
"""Before something counts as lost: a broker that has just started, or just become leader, may need a moment."""
_NEW: Final = -1
"""As the position of a partition that had none yet."""


class StreamPlanner:
    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._connections = OpenCluster(options.consumer)
        self._view = LogView(self._connections.cluster, options.consumer, options.subscription)
        self._outlook = Outlook(self._view, self._clock)
        self._committer = GroupCommitter(options.consumer, options.group_id)
        self._known: Partitions = {}
        """Partitions as they were when this process last planned, so that topics created anew are noticed."""
        self._moved: dict[tuple[TopicPartition, int], int] = {}
        """Where reading goes on instead of a position: in new partitions, and behind a loss."""
        self._beginning: Mark | None = None
        self._target: Positions | None = None
        """Where to stop, when the query is to end with what there is."""
        self._batch_s = float("-inf")
        """When the last batch was planned."""
        self._idle = 0
        """How often Spark has asked since, in vain."""
        self._checked = False
        """Whether positions of an earlier run were held against where partitions begin."""
        self._left_out: set[TopicPartition] = set()
        """That the checkpoint has positions in, though they are not read any more."""
        self._density: dict[TopicPartition, float] = {}

    # Where to begin

    def initial(self) -> Mark:
        """The same each time, since Spark asks for it more than once: the ends of topics move on meanwhile."""
        if self._beginning is None:
            self._beginning = run(self._initial())
        return self._beginning

    async def _initial(self) -> Mark:
        self._known = await self._view.existing_partitions()
        mark = self._options.mark
        if mark is not None:  # it is held against what there is when the first batch is planned, as a checkpoint is
            return replace(mark, began=mark.positions)
        bound = self._options.starting or Place.LATEST
        starts = await resolve(bound, "startingOffsets", self._view, self._options, self._known)
        if bound is not Place.EARLIEST and bound is not Place.LATEST:
            earliest, latest = await self._view.earliest(self._known), await self._view.latest(self._known)
            starts, _ = check_bounds(starts, latest, earliest, latest, fail=self._options.fail_on_data_loss)
        self._checked = True
        return Mark.of(starts, self._known, began=starts)

    def stop_at_what_there_is(self) -> None:
        run(self._outlook.look(thoroughly=True))
        self._target = dict(self._outlook.ends)

    # How far the next batch goes

    def latest(self, start: Mark, *, unlimited: bool) -> Mark:
        """Everything before `start` has been dealt with."""
        ours = self._ours(start)
        self._committer.note(ours)
        if self._target is None and self._outlook.is_fresh(self._idle):
            return start
        ends = run(self._latest(ours, self._known | start.partitions, unlimited))
        end = Mark.of(ends, self._known, began=start.positions if start.is_the_beginning else None)
        if end.positions == start.positions and not created_anew(end.partitions, start.partitions):
            self._idle += 1
            return start
        self._idle = 0
        self._batch_s = self._clock.monotonic()
        return end

    def _ours(self, mark: Mark) -> Positions:
        """Without what is not read: positions of another query, or of this one before it was changed."""
        foreign = {at for at in mark.positions.keys() - self._known.keys() if not self._options.subscription.covers(at)}
        if foreign - self._left_out:
            report_foreign(sorted(foreign), self._options.subscription, fail=self._options.fail_on_data_loss)
            self._left_out |= foreign
        return {at: offset for at, offset in mark.positions.items() if at not in foreign}

    async def _latest(self, start: Positions, known: Partitions, unlimited: bool) -> Positions:
        await self._outlook.look()
        await self._make_sure(start, known)
        begins = await self._footing(start, known)
        ends = self._outlook.ends if self._target is None else self._target
        waiting = {at: max(0, ends.get(at, begin) - begin) for at, begin in begins.items()}
        if not unlimited:
            unharmed = all(begins.get(at) == offset for at, offset in start.items())
            if unharmed and self._holds_back(sum(waiting.values())):
                return start
            waiting = await self._limited(begins, waiting, turn=sum(start.values()))
        # A new partition counts from its first record on, so that an empty one makes no batch.
        end = {at: begin + waiting[at] for at, begin in begins.items() if waiting[at] or at in start}
        for at, begin in begins.items():
            if at in start and end[at] == start[at] != begin:
                end[at] = begin  # Spark would take it for no progress, so the way back is a step of its own
        return end

    def _holds_back(self, waiting: int) -> bool:
        fewest = self._options.min_offsets if self._target is None else None
        waited_s = self._clock.monotonic() - self._batch_s
        return held_back(waiting, fewest, waited_s, self._options.max_delay_ms / 1000)

    async def _limited(
        self, begins: Positions, waiting: dict[TopicPartition, int], turn: int
    ) -> dict[TopicPartition, int]:
        options = self._options
        if options.max_bytes is not None:
            ranges = [OffsetRange(at, begins[at], begins[at] + count) for at, count in waiting.items() if count]
            self._density |= await bytes_per_offset(self._connections.cluster, options.consumer, ranges, self._known)
            waiting = limit_by_bytes(waiting, self._density, options.max_bytes, turn)
        if options.max_offsets is not None:
            waiting = share_out(waiting, options.max_offsets, turn)
        return waiting

    async def _make_sure(self, start: Positions, known: Partitions) -> None:
        """Looks again while it seems that partitions are gone, or end before what was read of them."""
        for attempt in range(_LOOKS_AGAIN):
            anew = created_anew(self._outlook.partitions, known)
            if all(self._outlook.ends.get(at, _NEW) >= offset or at in anew for at, offset in start.items()):
                return
            await asyncio.sleep(self._connections.cluster.backoff.delay_s(attempt))
            await self._outlook.look(thoroughly=True)

    async def _footing(self, start: Positions, known: Partitions) -> Positions:
        """Where reading goes on, in all partitions that there are. What was lost is reported, once.

        `known` are partitions as they were when their positions were taken.
        """
        there = dict(self._outlook.partitions)
        if self._target is not None:
            there = {at: topic_id for at, topic_id in there.items() if at in self._target or at in start}
        self._moved = {place: to for place, to in self._moved.items() if start.get(place[0], _NEW) == place[1]}
        begins = {at: to for (at, _), to in self._moved.items() if at in there}
        unsettled = {at: topic_id for at, topic_id in there.items() if at not in begins}
        needed = (unsettled.keys() - start.keys()) | created_anew(unsettled, known)
        earliest = await self._view.earliest(needed if self._checked else unsettled)
        for at in needed - earliest.keys():
            del unsettled[at]  # it vanished at this very moment: the next look will tell
        self._checked = True
        positions = {at: offset for at, offset in start.items() if at not in begins}
        footing = find_footing(positions, unsettled, known, earliest, self._outlook.ends)
        for loss in footing.losses:
            report_loss(loss, fail=self._options.fail_on_data_loss)
        for at, begin in footing.begins.items():
            if begin != start.get(at):
                self._moved[at, start.get(at, _NEW)] = begin
        self._known = there
        return begins | footing.begins

    # Which tasks read it

    def tasks(self, start: Mark, end: Mark) -> list[RangePartition]:
        ends = self._ours(end)
        # The first batch may have been planned by an earlier process, whose beginning was another.
        starts = self._ours(start) if end.began is None else dict(end.began)
        for at in created_anew(end.partitions, start.partitions):
            starts.pop(at, None)  # it is read from its beginning on
        return run(self._tasks(starts, ends, end.partitions))

    async def _tasks(self, start: Positions, end: Positions, planned: Partitions) -> list[RangePartition]:
        if not end.keys() <= self._known.keys():
            # A batch that was planned before this process started.
            self._known = {**await self._view.partitions(), **self._known}
        gone = dict.fromkeys(end.keys() - self._known.keys(), "the partition does not exist any more")
        for at in created_anew(self._known, planned):
            gone[at] = f"topic {at.topic} was deleted and created anew"
        for at in sorted(gone.keys() & end.keys()):
            first, last = max(start.get(at, 0), 0), end[at] - 1
            if first <= last:
                what = f"{at}: offsets {first} to {last} were to be read, but {gone[at]}"
                report_loss(what, fail=self._options.fail_on_data_loss)
        ends = {at: offset for at, offset in end.items() if at not in gone}
        begins = await self._begins(start, ends)
        ranges = [OffsetRange(at, begins[at], offset) for at, offset in ends.items() if at in begins]
        return to_tasks(ranges, self._options, self._known)

    async def _begins(self, start: Positions, end: Positions) -> Positions:
        begins: Positions = {}
        anew: list[TopicPartition] = []
        for at, offset in end.items():
            position = start.get(at, _NEW)
            if (at, position) in self._moved:
                begins[at] = self._moved[at, position]
            elif position == _NEW or position > offset:
                anew.append(at)
            else:
                begins[at] = position
        return begins | await self._view.earliest(anew)

    def reported(self) -> Mark | None:
        """Where the partitions end, as last heard of: what a lag is measured against."""
        return Mark.of(self._outlook.ends, self._outlook.partitions) if self._outlook.ends else None

    def close(self) -> None:
        self._committer.close()
        self._connections.close()
