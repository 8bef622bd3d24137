from __future__ import annotations

from group_shapes import (
    Members,
    Partitions,
    any_groups,
    assert_complete,
    even_groups,
    groups_with_claims,
    owners,
    owning,
)
from hypothesis import given
from hypothesis import strategies as st

from tidelog.assign.cooperative import cooperative_sticky
from tidelog.assign.sticky import sticky
from tidelog.assign.subscriber import Subscriber


@given(groups_with_claims())
def test_nothing_is_given_to_one_that_another_says_it_has(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    for (topic, partition), owner in owners(cooperative_sticky(members, partitions)).items():
        for other, member in members.items():
            assert other == owner or partition not in member.owned.get(topic, ())


@given(any_groups, st.data())
def test_the_second_round_gives_away_what_the_first_took(
    group: tuple[Members, Partitions], data: st.DataObject
) -> None:
    members, partitions = group
    settled = owning(members, sticky(members, partitions))
    leaving = data.draw(st.sampled_from(sorted(members)))
    del settled[leaving]
    settled["newcomer"] = Subscriber(members[leaving].topics)
    first = cooperative_sticky(settled, partitions)
    second = cooperative_sticky(owning(settled, first, generation=2), partitions)
    assert_complete(settled, partitions, second)


@given(even_groups())
def test_members_read_on_what_they_keep(group: tuple[Members, Partitions]) -> None:
    members, partitions = group
    before = sticky(members, partitions)
    settled = owning(members, before)
    settled["newcomer"] = Subscriber(next(iter(members.values())).topics)
    between = cooperative_sticky(settled, partitions)
    assert not between["newcomer"], "all of it is in use"
    kept, had = owners(between), owners(before)
    assert all(had[partition] == owner for partition, owner in kept.items())


def test_who_is_alone_gets_everything_at_once() -> None:
    assert cooperative_sticky({"m": Subscriber(frozenset({"t"}))}, {"t": 3}) == {"m": {"t": [0, 1, 2]}}
