"""Which replica a consumer is sent to."""

from __future__ import annotations

import pytest

from tidelog.replication.isr import Follower
from tidelog.replication.nearest import nearest

RACKS = {1: "east", 2: "west", 3: "west", 4: None}


def follower(start: int, end: int) -> Follower:
    made = Follower()
    made.start_offset, made.end_offset = start, end
    return made


@pytest.mark.parametrize(
    ("rack", "offset", "expected"),
    [("", 5, 1), ("east", 5, 1), ("west", 5, 3), ("west", 11, 1), ("west", 1, 2), ("north", 5, 1)],
    ids=["says no rack", "the leader's", "the furthest", "nobody has it", "only one has it still", "nobody's"],
)
def test_a_consumer_reads_in_its_own_rack_if_it_can(rack: str, offset: int, expected: int) -> None:
    followers = [(2, follower(0, 8)), (3, follower(2, 9)), (4, follower(0, 20))]
    assert nearest(rack, 1, RACKS, followers, offset) == expected


def test_a_broker_that_cannot_be_reached_is_nowhere() -> None:
    assert nearest("west", 1, {1: "east"}, [(2, follower(0, 8))], 5) == 1
