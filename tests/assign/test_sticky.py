from __future__ import annotations

from group_shapes import (
    Members,
    Partitions,
    any_groups,
    assert_complete,
    even_groups,
    groups_with_claims,
    loads,
    owners,
    owning,
    uneven_groups,
)
from hypothesis import given
from hypothesis import strategies as st

from tidelog.assign.sticky import settle_claims, sticky, uniform
from tidelog.assign.subscriber import Subscriber


def same(*topics: str, **owned: list[int]) -> Subscriber[str]:
    return Subscriber(frozenset(topics), owned)


@given(any_groups)
def test_every_partition_has_one_owner_among_its_subscribers(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    assert_complete(members, partitions, uniform(members, partitions))


@given(groups_with_claims())
def test_false_claims_change_nothing_of_that(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    assert_complete(members, partitions, sticky(members, partitions))


@given(even_groups())
def test_shares_differ_by_one_at_most_when_all_subscribe_alike(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    sizes = loads(uniform(members, partitions)).values()
    assert max(sizes) - min(sizes) <= 1


@given(uneven_groups())
def test_no_single_move_would_improve_the_balance(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    assignment = uniform(members, partitions)
    load = loads(assignment)
    for (topic, _partition), owner in owners(assignment).items():
        for other, member in members.items():
            if topic in member.topics:
                assert load[owner] - load[other] < 2


@given(any_groups)
def test_nothing_moves_when_nothing_changes(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    first = uniform(members, partitions)
    assert uniform(owning(members, first), partitions) == first


@given(even_groups(), st.data())
def test_when_a_member_leaves_only_its_partitions_move(group: tuple[Members, Partitions], data: st.DataObject) -> None:
    members, partitions = group
    before = owners(uniform(members, partitions))
    leaving = data.draw(st.sampled_from(sorted(members)))
    staying = owning(members, uniform(members, partitions))
    del staying[leaving]
    after = owners(uniform(staying, partitions))
    moved = {partition for partition in after if after[partition] != before[partition]}
    assert moved == {partition for partition in after if before[partition] == leaving}


@given(even_groups())
def test_when_a_member_joins_only_its_share_moves(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    first = uniform(members, partitions)
    joined = owning(members, first)
    joined["newcomer"] = Subscriber(next(iter(members.values())).topics)
    second = uniform(joined, partitions)
    before, after = owners(first), owners(second)
    moved = [partition for partition in after if after[partition] != before[partition]]
    assert len(moved) == loads(second)["newcomer"]
    assert all(after[partition] == "newcomer" for partition in moved)


@given(even_groups(), st.integers(1, 9))
def test_when_a_topic_grows_what_was_there_moves_as_little_as_balance_allows(
    group: tuple[Members, Partitions], more: int
) -> None:
    members, partitions = group
    first = uniform(members, partitions)
    grown = {topic: count + more for topic, count in partitions.items()}
    before, after = owners(first), owners(uniform(owning(members, first), grown))
    assert all(after[partition] == owner for partition, owner in before.items())


def test_a_topic_is_spread_over_the_members_and_not_given_to_a_few() -> None:
    members = {name: same("a", "b") for name in ("m1", "m2")}
    assert uniform(members, {"a": 2, "b": 2}) == {"m1": {"a": [0], "b": [0]}, "m2": {"a": [1], "b": [1]}}


def test_one_who_has_the_larger_share_keeps_it() -> None:
    members = {"m1": same("t", t=[2]), "m2": same("t", t=[0, 1])}
    assert uniform(members, {"t": 3}) == {"m1": {"t": [2]}, "m2": {"t": [0, 1]}}


def test_members_of_several_generations_the_last_is_believed() -> None:
    members: Members = {
        "early": Subscriber(frozenset({"t"}), {"t": [0, 1]}, generation=1),
        "late": Subscriber(frozenset({"t"}), {"t": [1]}, generation=2),
    }
    settled = settle_claims(members)
    assert settled["early"].owned == {"t": [0]}
    assert settled["late"].owned == {"t": [1]}


def test_two_claims_of_one_generation_cancel_out() -> None:
    members: Members = {
        name: Subscriber(frozenset({"t"}), {"t": [0, number]}, generation=3) for number, name in ((1, "m1"), (2, "m2"))
    }
    assert {name: member.owned for name, member in settle_claims(members).items()} == {
        "m1": {"t": [1]},
        "m2": {"t": [2]},
    }


def test_topics_that_few_may_read_are_dealt_out_first() -> None:
    members = {"both": same("a", "z"), "only-a": same("a")}
    assert loads(uniform(members, {"a": 4, "z": 4})) == {"both": 4, "only-a": 4}


def test_nobody_is_a_group_too() -> None:
    assert uniform({}, {"t": 3}) == {}
    assert sticky({}, {}) == {}
