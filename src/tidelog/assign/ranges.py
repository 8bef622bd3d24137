"""Range: consecutive partitions of each topic to consecutive members, topic by topic.

Topics with equally many partitions and the same subscribers are divided alike: whoever has partition 3 of one has
partition 3 of all, so that records with equal keys meet. The price is that the first members have more to do, if
partitions do not divide evenly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.assign.quota import fair_sizes
from tidelog.assign.subscriber import Assignment, Subscriber, Topic, in_order, subscribers_by_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def classic_range(members: Mapping[str, Subscriber[Topic]], partitions: Mapping[Topic, int]) -> Assignment[Topic]:
    """Divides anew each time: what members had does not matter."""
    order = in_order(members)
    assignment: Assignment[Topic] = {member_id: {} for member_id in members}
    for topic, subscribers in subscribers_by_topic(members, order, partitions).items():
        quota, extras = divmod(partitions[topic], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            size = quota + (place < extras)
            if size:
                assignment[member_id][topic] = list(range(start, start + size))
            start += size
    return assignment


def server_range(members: Mapping[str, Subscriber[Topic]], partitions: Mapping[Topic, int]) -> Assignment[Topic]:
    """Keeps what members have as far as their new share allows; the ranges then have holes."""
    order = in_order(members)
    assignment: Assignment[Topic] = {member_id: {} for member_id in members}
    alike: dict[tuple[int, tuple[str, ...]], list[Topic]] = {}
    for topic, subscribers in subscribers_by_topic(members, order, partitions).items():
        alike.setdefault((partitions[topic], tuple(subscribers)), []).append(topic)
    for (count, subscribers_alike), topics in alike.items():
        for member_id, share in _divide(count, subscribers_alike, topics, members).items():
            for topic in topics:
                assignment[member_id][topic] = list(share)
    return assignment


def _divide(
    count: int, subscribers: Sequence[str], topics: Sequence[Topic], members: Mapping[str, Subscriber[Topic]]
) -> dict[str, list[int]]:
    """Divides the numbers of partitions that several topics have in common."""
    holder: list[str | None] = [None] * count
    for topic in topics:  # where topics disagree on who has a number, the first one is followed
        for member_id in subscribers:
            for partition in members[member_id].owned.get(topic, ()):
                if 0 <= partition < count and holder[partition] is None:
                    holder[partition] = member_id
        if None not in holder:
            break
    kept: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
    for partition, member in enumerate(holder):
        if member is not None:
            kept[member].append(partition)
    sizes = fair_sizes([len(kept[member_id]) for member_id in subscribers], count)
    free = {partition for partition in range(count) if holder[partition] is None}
    for member_id, size in zip(subscribers, sizes, strict=True):
        free.update(kept[member_id][size:])
        del kept[member_id][size:]
    unassigned = iter(sorted(free))
    for member_id, size in zip(subscribers, sizes, strict=True):
        share = kept[member_id]
        share += [next(unassigned) for _ in range(size - len(share))]
        share.sort()
    return {member_id: share for member_id, share in kept.items() if share}
