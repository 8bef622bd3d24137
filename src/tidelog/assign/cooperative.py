"""Cooperative sticky: members keep reading while partitions move, in two rounds.

The first round takes from every member what is to move, the second gives it to its new owner: in between nobody has
it, so that never two members do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.assign.sticky import sticky

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.assign.subscriber import Assignment, Subscriber, Topic


def cooperative_sticky(members: Mapping[str, Subscriber[Topic]], partitions: Mapping[Topic, int]) -> Assignment[Topic]:
    """What to hand out in this round. Members that lost something join again, and the next round gives it away."""
    wanted = sticky(members, partitions)
    holders: dict[tuple[Topic, int], set[str]] = {}
    for member_id, member in members.items():
        for topic, numbers in member.owned.items():
            for partition in numbers:
                holders.setdefault((topic, partition), set()).add(member_id)
    nobody: set[str] = set()
    assignment: Assignment[Topic] = {}
    for member_id, share in wanted.items():
        mine = {member_id}
        free = {
            topic: [number for number in numbers if holders.get((topic, number), nobody) <= mine]
            for topic, numbers in share.items()
        }
        assignment[member_id] = {topic: numbers for topic, numbers in free.items() if numbers}
    return assignment
