"""Where reading begins and ends: options turned into offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.options import OptionError
from tidelog.pipelines.source.errors import SourceError
from tidelog.pipelines.source.options import Instant, Place
from tidelog.pipelines.source.positions import EARLIEST, LATEST, named

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tidelog.client.config import ConsumerConfig
    from tidelog.pipelines.source.log_view import LogView
    from tidelog.pipelines.source.options import Bound, SourceOptions
    from tidelog.pipelines.source.positions import Positions
    from tidelog.types import TopicPartition


async def resolve(
    bound: Bound, option: str, view: LogView, options: SourceOptions, partitions: Collection[TopicPartition]
) -> Positions:
    """The offset that `bound` means in each partition. `option` is the one to blame."""
    match bound:
        case Place.EARLIEST:
            return await view.earliest(partitions)
        case Place.LATEST:
            return await view.latest(partitions)
        case Place.GROUP:
            return await _of_group(view, options, partitions)
        case Instant():
            return await _at(bound, option, view, partitions)
        case _:
            return await _named(bound, option, view, partitions)


async def _named(
    wanted: Mapping[TopicPartition, int], option: str, view: LogView, partitions: Collection[TopicPartition]
) -> Positions:
    check_complete(wanted, option, partitions)
    positions = dict(wanted)
    positions |= await view.earliest([at for at, offset in wanted.items() if offset == EARLIEST])
    positions |= await view.latest([at for at, offset in wanted.items() if offset == LATEST])
    return positions


async def _at(bound: Instant, option: str, view: LogView, partitions: Collection[TopicPartition]) -> Positions:
    if bound.everywhere_ms is None:
        check_complete(bound.by_partition_ms, option, partitions)
        times = bound.by_partition_ms
    else:
        times = dict.fromkeys(partitions, bound.everywhere_ms)
    found = await view.at_times(times)
    late = [partition for partition in times if partition not in found]
    if late and not bound.latest_if_none:
        raise SourceError(
            f"no record of {late[0]} is as young as {times[late[0]]} ms since 1970: choose an earlier time, or set "
            "option startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    return found | await view.latest(late)


async def _of_group(view: LogView, options: SourceOptions, partitions: Collection[TopicPartition]) -> Positions:
    committed = await group_positions(options.consumer, options.group_id, partitions)
    fresh = [partition for partition in partitions if partition not in committed]
    reset = options.consumer.auto_offset_reset or "earliest"
    if fresh and reset == "none":
        raise SourceError(
            f"group {options.group_id} has committed nothing for {fresh[0]}: commit a position, or set option "
            "kafka.auto.offset.reset to earliest or latest"
        )
    begin = view.latest if reset == "latest" else view.earliest
    return committed | await begin(fresh)


async def group_positions(config: ConsumerConfig, group_id: str, partitions: Collection[TopicPartition]) -> Positions:
    from tidelog.client.admin import Admin  # noqa: PLC0415 - takes long to load, and few need it

    async with Admin(config) as admin:
        found = await admin.list_group_offsets(group_id, partitions)
    return {partition: commit.offset for partition, commit in found.items() if partition in partitions}


def check_complete(wanted: Mapping[TopicPartition, int], option: str, partitions: Collection[TopicPartition]) -> None:
    """Each partition must be named, and no other: whoever forgets one would not notice."""
    missing = sorted(set(partitions) - wanted.keys())
    if missing:
        raise OptionError(
            f"option {option} says nothing about {missing[0]}: name all {len(partitions)} partitions, with -2 for the "
            "beginning and -1 for the end"
        )
    unknown = {partition: offset for partition, offset in wanted.items() if partition not in partitions}
    if unknown:
        raise OptionError(f"option {option} names {named(unknown)}, which is not among what is read, or does not exist")
