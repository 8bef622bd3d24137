"""Sticky: as balanced as subscriptions allow, and everyone keeps as much of what it has as that allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.assign.quota import fair_sizes
from tidelog.assign.subscriber import Assignment, Share, Subscriber, Topic, in_order, same_topics
from tidelog.assign.uneven import balance_uneven

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def uniform(members: Mapping[str, Subscriber[Topic]], partitions: Mapping[Topic, int]) -> Assignment[Topic]:
    """The coordinator's default. It knows who owns what, so no two members own a partition."""
    order = in_order(members)
    if not same_topics(members):
        return balance_uneven(members, order, partitions)
    return _balance_even(members, order, partitions)


def sticky(members: Mapping[str, Subscriber[Topic]], partitions: Mapping[Topic, int]) -> Assignment[Topic]:
    """For the leader of a classic group, which only knows what members say they own."""
    return uniform(settle_claims(members), partitions)


def settle_claims(members: Mapping[str, Subscriber[Topic]]) -> dict[str, Subscriber[Topic]]:
    """Leaves each partition to one member at most.

    A member that missed a rebalance still lists what has been given to others since: the later generation is right.
    Two claims of one generation cannot both be true, and nobody can tell which is.
    """
    latest: dict[tuple[Topic, int], tuple[int, str | None]] = {}
    for member_id, member in members.items():
        for topic, numbers in member.owned.items():
            for partition in set(numbers):
                generation, _holder = latest.get((topic, partition), (member.generation - 1, None))
                if member.generation > generation:
                    latest[topic, partition] = member.generation, member_id
                elif member.generation == generation:
                    latest[topic, partition] = generation, None
    owned: dict[str, dict[Topic, list[int]]] = {member_id: {} for member_id in members}
    for (topic, partition), (_generation, holder) in latest.items():
        if holder is not None:
            owned[holder].setdefault(topic, []).append(partition)
    return {
        member_id: Subscriber(member.topics, owned[member_id], member.generation, member.instance_id)
        for member_id, member in members.items()
    }


def _balance_even(
    members: Mapping[str, Subscriber[Topic]], order: list[str], partitions: Mapping[Topic, int]
) -> Assignment[Topic]:
    """All members subscribe to the same topics: the sizes of their shares are known beforehand."""
    if not order:
        return {}
    counts = {topic: partitions[topic] for topic in sorted(members[order[0]].topics) if topic in partitions}
    kept = {member_id: _still_there(members[member_id], counts) for member_id in order}
    held = [sum(map(len, kept[member_id].values())) for member_id in order]
    sizes = fair_sizes(held, sum(counts.values()))
    assignment: Assignment[Topic] = {}
    needs: list[tuple[str, int]] = []
    for member_id, holds, size in zip(order, held, sizes, strict=True):
        assignment[member_id] = kept[member_id] if holds <= size else _first(kept[member_id], size)
        if holds < size:
            needs.append((member_id, size - holds))
    _deal_out(counts, assignment, needs)
    return assignment


def _still_there(member: Subscriber[Topic], counts: Mapping[Topic, int]) -> Share[Topic]:
    """What a member owns, less what no longer exists or what it no longer subscribes to."""
    kept: Share[Topic] = {}
    for topic, owned in member.owned.items():
        count = counts.get(topic, 0)
        numbers = sorted(number for number in owned if 0 <= number < count)
        if numbers:
            kept[topic] = numbers
    return kept


def _first(share: Share[Topic], size: int) -> Share[Topic]:
    """As much of a share as may be kept. A little of every topic goes, so that members go on sharing each topic."""
    surplus = sum(map(len, share.values())) - size
    trimmed = {topic: list(numbers) for topic, numbers in sorted(share.items())}
    while surplus:
        for topic in list(trimmed)[:surplus]:
            trimmed[topic].pop()
            surplus -= 1
        trimmed = {topic: numbers for topic, numbers in trimmed.items() if numbers}
    return trimmed


def _deal_out(counts: Mapping[Topic, int], assignment: Assignment[Topic], needs: list[tuple[str, int]]) -> None:
    """Gives what nobody holds to those who need it, in turns, so that each topic is spread over them."""
    taken: dict[Topic, set[int]] = {topic: set() for topic in counts}
    for share in assignment.values():
        for topic, numbers in share.items():
            taken[topic].update(numbers)
    turns = _turns(needs)
    changed: set[tuple[str, Topic]] = set()
    for topic, count in counts.items():
        if len(taken[topic]) == count:
            continue
        for partition in range(count):
            if partition not in taken[topic]:
                member_id = next(turns)
                assignment[member_id].setdefault(topic, []).append(partition)
                changed.add((member_id, topic))
    for member_id, topic in changed:
        assignment[member_id][topic].sort()


def _turns(needs: list[tuple[str, int]]) -> Iterator[str]:
    """Each member as often as it needs one more, one after the other: the neediest stay longest."""
    while needs:
        for member_id, _need in needs:
            yield member_id
        needs = [(member_id, need - 1) for member_id, need in needs if need > 1]
