"""Holds the positions of a stream against what brokers say now: where reading can go on, and what is lost. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipelines.source.positions import Positions
    from tidelog.types import TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class Footing:
    begins: Positions
    """Where reading goes on, for every partition that there is."""
    losses: tuple[str, ...]
    """What was to be read and cannot be, in words."""


def created_anew(
    partitions: Mapping[TopicPartition, TopicId], known: Mapping[TopicPartition, TopicId]
) -> set[TopicPartition]:
    """Those whose topic is another one than it was, though its name is the same."""
    return {
        at
        for at, topic_id in partitions.items()
        if at in known and ZERO_TOPIC_ID not in {topic_id, known[at]} and topic_id != known[at]
    }


def find_footing(
    start: Mapping[TopicPartition, int],
    partitions: Mapping[TopicPartition, TopicId],
    known: Mapping[TopicPartition, TopicId],
    earliest: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Footing:
    """`known` are partitions as they were when `start` was read. `earliest` must tell of those that are new or created
    anew; where it tells of others, they are checked too.
    """
    anew = created_anew(partitions, known)
    begins: Positions = {}
    losses: list[str] = []
    for at, offset in start.items():
        if at not in partitions:
            losses.append(f"{at}: reading has come to offset {offset}, but the partition does not exist any more")
        elif at in anew:
            losses.append(
                f"{at}: reading has come to offset {offset}, but topic {at.topic} was deleted and created anew; what "
                "was not read before is gone"
            )
            begins[at] = earliest[at]
        elif ends[at] < offset:
            losses.append(
                f"{at}: reading has come to offset {offset}, but the partition now ends at offset {ends[at]}: records "
                "were lost, or the topic was deleted and created anew"
            )
            begins[at] = min(earliest.get(at, ends[at]), ends[at])
        elif earliest.get(at, offset) > offset:
            losses.append(
                f"{at}: offsets {offset} to {earliest[at] - 1} were to be read, but the partition now begins at offset "
                f"{earliest[at]}: earlier ones were deleted"
            )
            begins[at] = earliest[at]
        else:
            begins[at] = offset
    for at in sorted(partitions.keys() - start.keys()):
        begins[at] = earliest[at]
        if earliest[at] > 0:
            losses.append(
                f"{at} is new, and offsets 0 to {earliest[at] - 1} of it were to be read, but it begins at offset "
                f"{earliest[at]} already"
            )
    return Footing(begins, tuple(losses))
