"""What an assignment costs, counted in steps of the interpreter rather than in time: a busy machine changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from line_count import lines_run

from tidelog.assign import CLASSIC
from tidelog.assign.ranges import server_range
from tidelog.assign.sticky import uniform
from tidelog.assign.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Mapping

    from group_shapes import ClassicAssignor

ASSIGNORS: dict[str, ClassicAssignor] = {**CLASSIC, "server range": server_range, "uniform": uniform}


def group(
    members: int, topics: int, partitions: int, *, uneven: bool
) -> tuple[Mapping[str, Subscriber[str]], dict[str, int]]:
    names = [f"t{number:04}" for number in range(topics)]
    everyone = frozenset(names)
    return (
        {
            f"m{number:04}": Subscriber(frozenset(names[: topics - number % 2]) if uneven else everyone)
            for number in range(members)
        },
        dict.fromkeys(names, partitions // topics),
    )


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_cost_grows_in_step_with_the_partitions(name: str, uneven: bool) -> None:
    assignor = ASSIGNORS[name]
    costs = []
    for factor in (1, 4):
        members, partitions = group(10 * factor, 5, 500 * factor, uneven=uneven)
        first = assignor(members, partitions)
        joined = {member_id: Subscriber(member.topics, first[member_id], 1) for member_id, member in members.items()}
        joined["newcomer"] = Subscriber(frozenset(partitions))
        costs.append(lines_run(lambda joined=joined, partitions=partitions: assignor(joined, partitions)))  # type: ignore[misc]
    assert costs[1] <= 6 * costs[0]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_hundred_members_and_ten_thousand_partitions(name: str) -> None:
    members, partitions = group(100, 100, 10_000, uneven=False)
    assert lines_run(lambda: ASSIGNORS[name](members, partitions)) < 200_000
