from __future__ import annotations

from group_shapes import Members, Partitions, any_groups, assert_complete, even_groups, loads
from hypothesis import given

from tidelog.assign.round_robin import round_robin
from tidelog.assign.subscriber import Subscriber


@given(any_groups)
def test_every_partition_has_one_owner_among_its_subscribers(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    assert_complete(members, partitions, round_robin(members, partitions))


@given(even_groups())
def test_shares_differ_by_one_at_most_when_all_subscribe_alike(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    sizes = loads(round_robin(members, partitions)).values()
    assert max(sizes) - min(sizes) <= 1


def test_partitions_of_all_topics_are_dealt_out_in_turns() -> None:
    members = {name: Subscriber(frozenset({"a", "b"})) for name in ("m1", "m2")}
    assert round_robin(members, {"b": 3, "a": 3}) == {"m1": {"a": [0, 2], "b": [1]}, "m2": {"a": [1], "b": [0, 2]}}


def test_who_does_not_subscribe_misses_its_turn() -> None:
    members = {"m1": Subscriber(frozenset({"a"})), "m2": Subscriber(frozenset({"a", "b"}))}
    assert round_robin(members, {"a": 1, "b": 2}) == {"m1": {"a": [0]}, "m2": {"b": [0, 1]}}
