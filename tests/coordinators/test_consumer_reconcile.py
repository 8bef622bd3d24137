"""The steps of one member towards its target: tables, and that no order of steps gives a partition to two members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinators.groups.consumer_member import NO_POSITION, MemberState, Partitions, Position
from tidelog.coordinators.groups.consumer_reconcile import reconcile

STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
T, U = b"t" * 16, b"u" * 16


def some(*numbers: int, topic: bytes = T) -> Partitions:
    return {topic: frozenset(numbers)} if numbers else {}


def at(epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions | None = None) -> Position:
    return Position(epoch, epoch - 1, state, assigned, revoking or {})


@pytest.mark.parametrize(
    ("position", "target", "owned", "taken", "expected"),
    [
        pytest.param(
            NO_POSITION,
            some(0, 1),
            {},
            set(),
            Position(5, 0, STABLE, some(0, 1), {}),
            id="a newcomer gets what is free",
        ),
        pytest.param(
            NO_POSITION, some(0, 1), {}, {1}, Position(5, 0, UNRELEASED, some(0), {}), id="and waits for what is not"
        ),
        pytest.param(
            at(4, STABLE, some(0, 1)),
            some(0),
            None,
            set(),
            Position(4, 3, UNREVOKED, some(0), some(1)),
            id="what is lost is first taken away, in the old epoch",
        ),
        pytest.param(
            at(4, STABLE, some(0, 1)),
            some(0),
            some(0),
            set(),
            Position(5, 4, STABLE, some(0), {}),
            id="unless the member says that it does not have it anyway",
        ),
        pytest.param(
            at(4, UNREVOKED, some(0), some(1)),
            some(0, 2),
            None,
            set(),
            at(4, UNREVOKED, some(0), some(1)),
            id="silence is no letting go",
        ),
        pytest.param(
            at(4, UNREVOKED, some(0), some(1)),
            some(0, 2),
            some(0, 1),
            set(),
            at(4, UNREVOKED, some(0), some(1)),
            id="nor is having it still",
        ),
        pytest.param(
            at(4, UNREVOKED, some(0), some(1)),
            some(0, 2),
            some(0),
            set(),
            Position(5, 4, STABLE, some(0, 2), {}),
            id="letting go leads into the new epoch",
        ),
        pytest.param(
            at(4, UNREVOKED, some(0, 2), some(1)),
            some(2),
            some(0, 2),
            set(),
            Position(4, 3, UNREVOKED, some(2), some(0)),
            id="a newer target may take more",
        ),
        pytest.param(
            at(4, UNREVOKED, some(0), some(1)),
            some(0, 1),
            some(0),
            set(),
            Position(5, 4, STABLE, some(0, 1), {}),
            id="a newer target may give back what was let go of",
        ),
        pytest.param(
            at(5, UNRELEASED, some(0)),
            some(0, 1),
            None,
            {1},
            at(5, UNRELEASED, some(0)),
            id="who waits goes on waiting",
        ),
        pytest.param(
            at(5, UNRELEASED, some(0)),
            some(0, 1),
            None,
            set(),
            at(5, STABLE, some(0, 1)),
            id="until it is free",
        ),
        pytest.param(
            at(5, STABLE, some(0, 1)), some(0, 1), None, set(), at(5, STABLE, some(0, 1)), id="who is there stays there"
        ),
        pytest.param(
            at(4, STABLE, some(0)),
            some(0),
            None,
            set(),
            Position(5, 4, STABLE, some(0), {}),
            id="only the epoch",
        ),
    ],
)
def test_a_step(
    position: Position, target: Partitions, owned: Partitions | None, taken: set[int], expected: Position
) -> None:
    def is_free(_topic_id: bytes, number: int) -> bool:
        return number not in taken

    assert reconcile(position, 5, target, {T}, owned, is_free, subscription_changed=False) == expected


def test_a_target_that_is_older_than_the_subscription_gives_only_what_is_subscribed() -> None:
    target = {**some(0), **some(0, topic=U)}
    position = reconcile(NO_POSITION, 5, target, {T}, {}, lambda _topic, _number: True, subscription_changed=True)
    assert position.assigned == some(0)


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        (None, Position(5, 4, UNREVOKED, some(0), some(1, topic=U))),
        ({**some(0), **some(1, topic=U)}, Position(5, 4, UNREVOKED, some(0), some(1, topic=U))),
        (some(0), Position(5, 4, STABLE, some(0), {})),
    ],
)
def test_unsubscribing_takes_away_before_there_is_a_new_target(owned: Partitions | None, expected: Position) -> None:
    position = at(5, STABLE, {**some(0), **some(1, topic=U)})
    target = position.assigned
    assert reconcile(position, 5, target, {T}, owned, lambda _t, _n: True, subscription_changed=True) == expected


def test_unsubscribing_while_letting_go_adds_to_what_is_to_go() -> None:
    position = at(5, UNREVOKED, {**some(0), **some(1, topic=U)}, some(2))
    after = reconcile(position, 6, {}, {T}, None, lambda _t, _n: True, subscription_changed=True)
    assert after == Position(5, 4, UNREVOKED, some(0), {**some(2), **some(1, topic=U)})


MEMBERS = ("a", "b", "c")
numbers = st.integers(0, 5)


@given(st.data())
def test_whatever_the_targets_no_two_members_ever_hold_a_partition(data: st.DataObject) -> None:
    positions = dict.fromkeys(MEMBERS, NO_POSITION)
    reading: dict[str, frozenset[int]] = dict.fromkeys(MEMBERS, frozenset())
    epoch, owners = 0, dict.fromkeys(range(6), MEMBERS[0])
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            epoch += 1
            owners = {number: data.draw(st.sampled_from(MEMBERS)) for number in range(6)}
        name = data.draw(st.sampled_from(MEMBERS))
        target = some(*(number for number, owner in owners.items() if owner == name))
        held = {
            number: other
            for other, position in positions.items()
            for partitions in (position.assigned, position.revoking)
            for number in partitions.get(T, ())
        }
        owned = some(*reading[name]) if data.draw(st.booleans()) else None
        positions[name] = reconcile(
            positions[name],
            max(epoch, 1),
            target,
            {T},
            owned,
            lambda _topic, number, held=held, name=name: held.get(number, name) == name,  # type: ignore[misc]
            subscription_changed=False,
        )
        if data.draw(st.booleans()):
            reading[name] = positions[name].assigned.get(T, frozenset())
        everything = [number for partitions in reading.values() for number in partitions]
        assert len(everything) == len(set(everything))
