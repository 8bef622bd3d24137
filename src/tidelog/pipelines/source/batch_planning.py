"""Which offsets a batch reads, and by how many tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.source.connections import run, shared_cluster
from tidelog.pipelines.source.log_view import LogView
from tidelog.pipelines.source.losing import check_bounds
from tidelog.pipelines.source.options import Place
from tidelog.pipelines.source.planning import resolve
from tidelog.pipelines.source.reading import to_tasks
from tidelog.pipelines.source.splits import OffsetRange

if TYPE_CHECKING:
    from tidelog.pipelines.source.filters import Narrowing
    from tidelog.pipelines.source.options import SourceOptions
    from tidelog.pipelines.source.reading import RangePartition


def plan_batch(options: SourceOptions, narrowing: Narrowing) -> list[RangePartition]:
    """`narrowing` leaves out what the query has no use for."""
    view = LogView(shared_cluster(options.consumer), options.consumer, options.subscription)
    return run(_plan(options, narrowing, view))


async def _plan(options: SourceOptions, narrowing: Narrowing, view: LogView) -> list[RangePartition]:
    partitions = await view.existing_partitions()
    starts = await resolve(options.starting or Place.EARLIEST, "startingOffsets", view, options, partitions)
    ends = await resolve(options.ending, "endingOffsets", view, options, partitions)
    earliest, latest = await view.earliest(partitions), await view.latest(partitions)
    starts, ends = check_bounds(starts, ends, earliest, latest, fail=options.fail_on_data_loss)
    ranges = [OffsetRange(at, starts[at], ends[at]) for at in sorted(starts)]
    ranges = await _narrowed(ranges, narrowing, view)
    return to_tasks(ranges, options, partitions)


async def _narrowed(ranges: list[OffsetRange], narrowing: Narrowing, view: LogView) -> list[OffsetRange]:
    kept = [each for each in ranges if narrowing.admits(each.partition)]
    if narrowing.not_before_ms is not None:
        partitions = [each.partition for each in kept]
        young = await view.at_times(dict.fromkeys(partitions, narrowing.not_before_ms))
        kept = [each._replace(start=max(each.start, young[each.partition])) for each in kept if each.partition in young]
    first, end = narrowing.first_offset, narrowing.end_offset
    return [
        each._replace(start=max(each.start, first), end=each.end if end is None else min(each.end, end))
        for each in kept
    ]
