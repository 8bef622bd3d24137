"""Replicas are spread evenly, over racks where there are any, and never twice on one broker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller.placement import interleave_racks, place
from tidelog.errors import BrokerError, ErrorCode

THREE = [(0, None), (1, None), (2, None)]


def test_the_first_replica_walks_over_the_brokers() -> None:
    assert [replicas[0] for replicas in place(THREE, 6, 1, start=1)] == [1, 2, 0, 1, 2, 0]


def test_the_followers_of_one_leader_differ_from_round_to_round() -> None:
    followers = {replicas[1] for replicas in place(THREE, 6, 2, start=0) if replicas[0] == 0}
    assert followers == {1, 2}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(BrokerError) as refusal:
        place(THREE, 1, 4, start=0)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_neighbours_in_the_walk_are_in_different_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    assert interleave_racks(list(racks.items())) == [0, 2, 4, 1, 3]


def test_partitions_added_later_go_on_where_the_first_ones_ended() -> None:
    whole = place(THREE, 5, 2, start=0)
    assert place(THREE, 2, 2, start=0, first_partition=3) == whole[3:]


@given(brokers=st.integers(1, 12), partitions=st.integers(1, 60), data=st.data())
def test_every_placement_is_even_and_has_no_broker_twice(brokers: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    start = data.draw(st.integers(0, 100))
    assignment = place([(broker, None) for broker in range(brokers)], partitions, factor, start=start)
    assert all(len(set(replicas)) == factor for replicas in assignment)
    leaders = Counter(dict.fromkeys(range(brokers), 0))
    leaders.update(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(racks=st.integers(2, 4), per_rack=st.integers(1, 4), partitions=st.integers(1, 30))
def test_two_replicas_are_never_in_one_rack_when_racks_are_even(racks: int, per_rack: int, partitions: int) -> None:
    brokers = [(number, f"rack-{number % racks}") for number in range(racks * per_rack)]
    rack_of = dict(brokers)
    first_round = place(brokers, min(partitions, len(brokers)), 2, start=0)
    assert all(rack_of[one] != rack_of[other] for one, other in first_round)
