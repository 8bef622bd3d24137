"""Observers: which replicas are, and how they are placed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller.observers import observers_among, place_with_observers
from tidelog.errors import BrokerError, ErrorCode

RACKS = {1: "east", 2: "east", 3: "west", 4: "west", 5: None}


@pytest.mark.parametrize(
    ("replicas", "observer_racks", "isr", "expected"),
    [
        ((1, 3), (), (1,), ()),
        ((1, 3), ("west",), (1,), (3,)),
        ((1, 3, 4), ("west",), (1,), (3, 4)),
        ((1, 3), ("west",), (3,), ()),
        ((1, 3, 4), ("west",), (3,), (4,)),
        ((1, 3), ("west",), (1, 3), (3,)),
        ((5, 9, 3), ("west",), (), (3,)),
    ],
    ids=[
        "without the setting nobody is",
        "a replica in the rack",
        "all replicas in the rack",
        "not while it is the only one in sync",
        "its neighbour is all the same",
        "once another is in sync too",
        "a broker without a rack, or away, is none",
    ],
)
def test_who_observes(
    replicas: tuple[int, ...], observer_racks: tuple[str, ...], isr: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert observers_among(replicas, RACKS, observer_racks, isr=isr) == expected


@given(partitions=st.integers(1, 40), start=st.integers(0, 20), first=st.integers(0, 10))
def test_each_observer_rack_gets_one_replica_after_all_others(partitions: int, start: int, first: int) -> None:
    placed = place_with_observers(list(RACKS.items()), partitions, 3, ("west",), start=start, first_partition=first)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == 3
        assert observers_among(replicas, RACKS, ("west",)) == replicas[2:]
    if partitions > 1:
        assert {replicas[2] for replicas in placed} == {3, 4}


def test_without_observer_racks_placement_is_as_ever() -> None:
    assert place_with_observers([(1, None), (2, None)], 2, 2, (), start=0) == ((1, 2), (2, 1))


@pytest.mark.parametrize(
    ("factor", "racks", "code"),
    [
        (1, ("west",), ErrorCode.INVALID_REPLICATION_FACTOR),
        (2, ("west", "east"), ErrorCode.INVALID_REPLICATION_FACTOR),
        (5, ("west",), ErrorCode.INVALID_REPLICATION_FACTOR),
        (2, ("north",), ErrorCode.INVALID_CONFIG),
    ],
)
def test_impossible_placements_are_refused(factor: int, racks: tuple[str, ...], code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refused:
        place_with_observers(list(RACKS.items()), 1, factor, racks, start=0)
    assert refused.value.code is code
