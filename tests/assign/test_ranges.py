from __future__ import annotations

import pytest
from group_shapes import (
    ClassicAssignor,
    Members,
    Partitions,
    any_groups,
    assert_complete,
    even_groups,
    groups_with_claims,
    loads,
    owners,
    owning,
)
from hypothesis import given
from hypothesis import strategies as st

from tidelog.assign.ranges import classic_range, server_range
from tidelog.assign.subscriber import Subscriber


@pytest.mark.parametrize("assignor", [classic_range, server_range])
@given(group=groups_with_claims())
def test_every_partition_has_one_owner_among_its_subscribers(
    assignor: ClassicAssignor, group: tuple[Members, Partitions]
) -> None:
    members, partitions = group
    assert_complete(members, partitions, assignor(members, partitions))


@pytest.mark.parametrize("assignor", [classic_range, server_range])
@given(group=any_groups)
def test_each_topic_is_balanced_over_its_subscribers(
    assignor: ClassicAssignor, group: tuple[Members, Partitions]
) -> None:
    members, partitions = group
    assignment = assignor(members, partitions)
    for topic in partitions:
        sizes = [len(assignment[name].get(topic, ())) for name, member in members.items() if topic in member.topics]
        assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("assignor", [classic_range, server_range])
@given(group=even_groups(), count=st.integers(1, 12))
def test_topics_with_equally_many_partitions_are_divided_alike(
    assignor: ClassicAssignor, group: tuple[Members, Partitions], count: int
) -> None:
    members, partitions = group
    found = owners(assignor(members, dict.fromkeys(partitions, count)))
    for (topic, partition), owner in found.items():
        assert all(found.get((other, partition), owner) == owner for other in partitions), topic


@pytest.mark.parametrize("assignor", [classic_range, server_range])
def test_members_get_consecutive_partitions_and_the_first_get_more(assignor: ClassicAssignor) -> None:
    members = {name: Subscriber(frozenset({"a", "b"})) for name in ("m3", "m1", "m2")}
    assert assignor(members, {"a": 4, "b": 2}) == {
        "m1": {"a": [0, 1], "b": [0]},
        "m2": {"a": [2], "b": [1]},
        "m3": {"a": [3]},
    }


@pytest.mark.parametrize("assignor", [classic_range, server_range])
def test_static_members_come_first_by_instance_id(assignor: ClassicAssignor) -> None:
    members = {
        "a": Subscriber(frozenset({"t"})),
        "z": Subscriber(frozenset({"t"}), instance_id="i1"),
        "y": Subscriber(frozenset({"t"}), instance_id="i2"),
    }
    assert assignor(members, {"t": 3}) == {"z": {"t": [0]}, "y": {"t": [1]}, "a": {"t": [2]}}


@given(even_groups(), st.data())
def test_on_the_server_a_leaving_member_moves_only_its_partitions(
    group: tuple[Members, Partitions], data: st.DataObject
) -> None:
    members, partitions = group
    first = server_range(members, partitions)
    staying = owning(members, first)
    leaving = data.draw(st.sampled_from(sorted(members)))
    del staying[leaving]
    before, after = owners(first), owners(server_range(staying, partitions))
    assert all(before[partition] in {owner, leaving} for partition, owner in after.items())


@given(even_groups())
def test_on_the_server_a_newcomer_takes_only_its_share(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    first = server_range(members, partitions)
    joined = owning(members, first)
    joined["newcomer"] = Subscriber(next(iter(members.values())).topics)
    second = server_range(joined, partitions)
    before, after = owners(first), owners(second)
    moved = [partition for partition in after if after[partition] != before[partition]]
    assert len(moved) == loads(second)["newcomer"]


@given(any_groups)
def test_nothing_moves_when_nothing_changes(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    first = server_range(members, partitions)
    assert server_range(owning(members, first), partitions) == first
