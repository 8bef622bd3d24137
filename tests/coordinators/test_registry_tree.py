"""From what a group is to the znodes it should have, and from those it has to the operations between."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.clock import SystemClock
from tidelog.coordinators.groups.registry import GroupView, Member
from tidelog.coordinators.groups.registry_tree import (
    MULTI_BYTES_MAX,
    NODE_BYTES_MAX,
    NODES_PER_GROUP_MAX,
    OPERATIONS_PER_MULTI,
    Found,
    Plan,
    Unfit,
    Wanted,
    batches,
    changes,
    check_group,
    done,
    wanted,
    wanted_offsets,
)
from tidelog.znodes.embedded import EmbeddedHome
from tidelog.znodes.nodes import GroupMember
from tidelog.znodes.path_rules import check_path
from tidelog.znodes.store import Check, Create, Delete, Operation, SetData, check_operations

OURS, THEIRS = 11, 12

VIEW = GroupView(
    "g",
    {"a": Member(frozenset({"t", "u"}), "", 5), "b/c": Member(frozenset({"t.1"}), "lo.*", 6)},
    {("t", 0): "a", ("t", 1): "b/c"},
    {("u", 3): 42},
)


def test_a_group_has_its_members_owners_and_offsets() -> None:
    tree = wanted(VIEW)
    assert {path: node.data for path, node in tree.items() if not path.startswith("/consumers/g/ids/")} == {
        "/consumers/g/ids": b"",
        "/consumers/g/owners": b"",
        "/consumers/g/owners/t": b"",
        "/consumers/g/owners/t/0": b"a",
        "/consumers/g/owners/t/1": b"b/c",
        "/consumers/g/offsets": b"",
        "/consumers/g/offsets/u": b"",
        "/consumers/g/offsets/u/3": b"42",
    }
    assert {path for path, node in tree.items() if node.ephemeral} == {
        "/consumers/g/ids/a",
        "/consumers/g/ids/b%2Fc",
        "/consumers/g/owners/t/0",
        "/consumers/g/owners/t/1",
    }


def test_members_tell_their_subscriptions_as_consumers_of_old_did() -> None:
    tree = wanted(VIEW)
    assert json.loads(tree["/consumers/g/ids/a"].data) == {
        "version": 1,
        "subscription": {"t": 1, "u": 1},
        "pattern": "static",
        "timestamp": "5",
    }
    assert GroupMember.decode("m", tree["/consumers/g/ids/b%2Fc"].data) == GroupMember((), 6, r"t\.1|lo.*")


@pytest.mark.parametrize(
    "slot", [("..", 0), (".", 0), ("", 0), ("a/b", 0), ("t", -1), ("é", 0), ("x" * 250, 0), ("a\nb", 0), ("t\n", 0)]
)
def test_what_is_no_partition_is_left_out(slot: tuple[str, int]) -> None:
    view = GroupView("g", {}, {slot: "m"}, {slot: 1})
    assert set(wanted(view)) == {"/consumers/g/ids", "/consumers/g/owners", "/consumers/g/offsets"}


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (VIEW._replace(group_id=""), "empty"),
        (VIEW._replace(group_id="g" * 800), "800 characters"),
        (VIEW._replace(members={"m" * 1100: Member(frozenset(), "", 0)}), "1100 characters"),
        (VIEW._replace(members={"": Member(frozenset(), "", 0)}), "0 characters"),
        (VIEW._replace(members={"m": Member(frozenset({"x" * NODE_BYTES_MAX}), "", 0)}), "bytes"),
        (VIEW._replace(offsets={("t", number): 0 for number in range(NODES_PER_GROUP_MAX)}), "nodes"),
    ],
)
def test_a_group_that_does_not_fit_is_not_shown_at_all(view: GroupView, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        wanted(view)


texts = st.text(st.characters(codec="utf-8"), max_size=8)
slots = st.tuples(st.sampled_from(["t", "a.b", "../..", "/"]) | texts, st.integers(-2, 5))
members = st.builds(Member, st.frozensets(texts, max_size=3), texts, st.integers(0, 9))
views = st.builds(
    GroupView,
    texts,
    st.dictionaries(texts, members, max_size=3),
    st.dictionaries(slots, texts, max_size=5),
    st.dictionaries(slots, st.integers(0, 99), max_size=5),
)


@given(views)
def test_no_name_leads_out_of_the_group(view: GroupView) -> None:
    try:
        tree = wanted(view)
    except Unfit:
        return
    check_group(view.group_id)
    for path in tree:
        check_path(path)
        assert path.rpartition("/")[0] in {*tree, f"/consumers/{path.split('/')[2]}"}
        assert path.split("/")[3] in {"ids", "owners", "offsets"}


small = st.builds(
    GroupView,
    st.just("g"),
    st.dictionaries(st.sampled_from("abc"), members, max_size=3),
    st.dictionaries(st.tuples(st.sampled_from("tu"), st.integers(0, 2)), st.sampled_from("abc"), max_size=4),
    st.dictionaries(st.tuples(st.sampled_from("tu"), st.integers(0, 2)), st.integers(0, 3), max_size=4),
)


def as_found(tree: dict[str, Wanted], owner: int) -> dict[str, Found]:
    return {path: Found(node.data, owner if node.ephemeral else 0) for path, node in tree.items()}


@given(small, small, st.sampled_from([OURS, THEIRS]))
def test_operations_lead_from_any_group_to_any_other(before: GroupView, after: GroupView, owner: int) -> None:
    have = as_found(wanted(before), owner)
    want = wanted(after)
    operations = changes(have, want, OURS)
    done(have, operations, OURS)
    assert have == as_found(want, OURS)
    assert changes(have, want, OURS) == []


@settings(max_examples=50)
@given(small, small, st.booleans())
def test_the_operations_work_in_a_real_tree(before: GroupView, after: GroupView, same_session: bool) -> None:
    async def scenario() -> None:
        home = await EmbeddedHome.open(None, SystemClock())
        theirs, ours = await home.begin_session(), await home.begin_session()
        await theirs.create("/consumers/g", make_parents=True)
        first = ours if same_session else theirs
        await first.multi(changes({}, wanted(before), first.session_id))
        have = as_found(wanted(before), first.session_id)
        operations = changes(have, wanted(after), ours.session_id)
        await ours.multi(operations)
        await theirs.close()
        for path, node in wanted(after).items():
            data, stat = await ours.get(path)
            assert (data, stat.ephemeral_owner) == (node.data, ours.session_id if node.ephemeral else 0)
        left = changes(as_found(wanted(after), ours.session_id), {}, ours.session_id)
        await ours.multi(left)
        assert await ours.children("/consumers/g") == []
        await home.close()

    asyncio.run(scenario())


def test_some_offsets_are_set_without_a_look_at_the_rest() -> None:
    have = as_found(wanted(VIEW), OURS)
    want = wanted_offsets("g", {("u", 3): 43, ("v", 0): 1})
    assert changes(have, want, OURS, whole=False) == [
        SetData("/consumers/g/offsets/u/3", b"43"),
        Create("/consumers/g/offsets/v"),
        Create("/consumers/g/offsets/v/0", b"1"),
    ]


def test_only_the_nodes_of_another_session_are_made_anew() -> None:
    have = {"/c/ids/a": Found(b"x", THEIRS), "/c/ids/b": Found(b"x", OURS), "/c/ids/c": Found(b"old", OURS)}
    want = {path: Wanted(b"x", ephemeral=True) for path in have}
    assert changes(have, want, OURS) == [
        Delete("/c/ids/a"),
        Create("/c/ids/a", b"x", ephemeral=True),
        SetData("/c/ids/c", b"x"),
    ]


operations = st.lists(st.integers(0, 200_000).map(lambda size: Create("/x", bytes(size))), max_size=8)


@given(st.lists(operations, max_size=6))
def test_batches_keep_everything_in_order_and_within_bounds(groups: list[list[Operation]]) -> None:
    plans = [Plan(str(at), Check(f"/{at}", at), list(each)) for at, each in enumerate(groups)]
    packed = batches(plans)
    told: dict[str, list[Operation]] = {plan.group_id: [] for plan in plans}
    for batch in packed:
        check_operations(batch.operations)
        assert sum(len(each.data) for each in batch.operations if isinstance(each, Create)) <= MULTI_BYTES_MAX
        at = 0
        for part in batch.parts:
            assert part.operations
            assert part.fence == Check(f"/{part.group_id}", int(part.group_id))
            assert batch.operations[at] == part.fence
            for index in range(at, at + 1 + len(part.operations)):
                assert batch.group_at(index) == part.group_id
            at += 1 + len(part.operations)
            told[part.group_id] += part.operations
        assert at == len(batch.operations)
        with pytest.raises(IndexError):
            batch.group_at(at)
    assert told == {plan.group_id: plan.operations for plan in plans}


def test_many_small_operations_are_split_too() -> None:
    many: list[Operation] = [Delete(f"/{number}") for number in range(1000)]
    packed = batches([Plan("a", Check("/a", 1), many), Plan("b", Check("/b", 2), [replace(Delete("/b/1"), version=3)])])
    assert max(len(batch.operations) for batch in packed) <= OPERATIONS_PER_MULTI
    assert len(packed) == 6
