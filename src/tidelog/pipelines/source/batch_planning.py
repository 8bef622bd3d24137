"""Which offsets a batch reads, and by how many tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.source.connections import run, shared_cluster
from tidelog.pipelines.source.log_view import LogView
from tidelog.pipelines.source.losing import check_bounds
from tidelog.pipelines.source.options import Place
from tidelog.pipelines.source.planning import resolve
from tidelog.pipelines.source.reading import RangePartition
from tidelog.pipelines.source.splits import OffsetRange, split

if TYPE_CHECKING:
    from tidelog.pipelines.source.options import SourceOptions


def plan_batch(options: SourceOptions) -> list[RangePartition]:
    view = LogView(shared_cluster(options.consumer), options.consumer, options.subscription)
    return run(_plan(options, view))


async def _plan(options: SourceOptions, view: LogView) -> list[RangePartition]:
    partitions = await view.existing_partitions()
    starts = await resolve(options.starting or Place.EARLIEST, "startingOffsets", view, options, partitions)
    ends = await resolve(options.ending, "endingOffsets", view, options, partitions)
    earliest, latest = await view.earliest(partitions), await view.latest(partitions)
    starts, ends = check_bounds(starts, ends, earliest, latest, fail=options.fail_on_data_loss)
    ranges = [OffsetRange(partition, starts[partition], ends[partition]) for partition in sorted(starts)]
    pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(piece, partitions[piece.partition]) for piece in pieces]
