"""Round robin: the partitions of all topics dealt out one by one, like cards."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from tidelog.assign.subscriber import Assignment, Subscriber, Topic, in_order, same_topics, subscribers_by_topic

if TYPE_CHECKING:
    from collections.abc import Mapping


def round_robin(members: Mapping[str, Subscriber[Topic]], partitions: Mapping[Topic, int]) -> Assignment[Topic]:
    order = in_order(members)
    assignment: Assignment[Topic] = {member_id: {} for member_id in members}
    by_topic = subscribers_by_topic(members, order, partitions)
    everyone_may = same_topics(members)
    turn = cycle(order)
    for topic in by_topic:
        for partition in range(partitions[topic]):
            member_id = next(turn)
            while not everyone_may and topic not in members[member_id].topics:
                member_id = next(turn)  # who does not subscribe misses the turn
            assignment[member_id].setdefault(topic, []).append(partition)
    return assignment
