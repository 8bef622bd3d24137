"""What to do about records that are not there: one clear error, or a loud warning. Never nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.pipelines.source.errors import DataLost, ForeignCheckpoint
from tidelog.pipelines.source.positions import first_few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipelines.source.options import Subscription
    from tidelog.pipelines.source.positions import Positions
    from tidelog.types import TopicPartition

log = logging.getLogger(__name__)


def report_loss(what: str, *, fail: bool) -> None:
    """`what` names the partition and the offsets."""
    if fail:
        raise DataLost(
            f"{what}; set option failOnDataLoss to false to go on without them, or begin anew from what there is"
        )
    log.warning("DATA LOSS: %s; going on without them, as failOnDataLoss is false", what)


def report_foreign(foreign: Sequence[TopicPartition], subscription: Subscription, *, fail: bool) -> None:
    """Of a checkpoint with positions in what the query does not read."""
    what = (
        f"the checkpoint has positions in {first_few([*map(str, foreign)])}, but this query reads {subscription}: it "
        "is the checkpoint of another query, or the query was changed"
    )
    if fail:
        raise ForeignCheckpoint(
            f"{what}. Nothing was read. Give the query a checkpointLocation of its own (a pipeline: `tidelog pipeline "
            "reset`), or set option failOnDataLoss to false to go on in what it reads, and leave the rest"
        )
    log.warning("DATA LOSS: %s; going on without them, as failOnDataLoss is false", what)


def check_bounds(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    *,
    fail: bool,
) -> tuple[Positions, Positions]:
    """What can be read of each partition, where it begins and where it ends. Ranges may come out empty."""
    begin: Positions = {}
    stop: Positions = {}
    for at, start in starts.items():
        first, last, end = earliest[at], latest[at], ends[at]
        if start < first and start < end:
            report_loss(
                f"{at}: offsets {start} to {min(first, end) - 1} were to be read, but the partition begins at offset "
                f"{first}",
                fail=fail,
            )
        stops = f"but what can be read of the partition ends at offset {last}"
        if start > last:
            report_loss(f"{at}: reading was to begin at offset {start}, {stops}", fail=fail)
        elif end > last:
            report_loss(f"{at}: offsets {start} to {end - 1} were to be read, {stops}", fail=fail)
        stop[at] = min(end, last)
        begin[at] = min(max(start, first), stop[at])
    return begin, stop
