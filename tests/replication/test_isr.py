"""The rules of the in-sync replicas: who leaves, who joins, what is safe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.isr import (
    LONG_AGO_MS,
    UNKNOWN_OFFSET,
    Follower,
    InSync,
    LagBounds,
    fallen_behind,
    may_join,
    safe_end,
)


def follower(end: int, caught_up_ms: int = LONG_AGO_MS) -> Follower:
    made = Follower(caught_up_ms)
    made.end_offset = end
    return made


@pytest.mark.parametrize(
    ("own_end", "ends", "safe"),
    [
        (10, [], 10),
        (10, [10, 10], 10),
        (10, [7, 9], 7),
        (10, [12], 10),
        (10, [UNKNOWN_OFFSET, 9], UNKNOWN_OFFSET),
    ],
    ids=["alone", "all have all", "the slowest decides", "never beyond the leader", "somebody is not known"],
)
def test_what_everyone_has_is_safe(own_end: int, ends: list[int], safe: int) -> None:
    assert safe_end(own_end, [follower(end) for end in ends]) == safe


@given(st.integers(0, 100), st.lists(st.integers(-1, 100)))
def test_nothing_is_safe_that_one_of_them_lacks(own_end: int, ends: list[int]) -> None:
    assert safe_end(own_end, [follower(end) for end in ends]) == min([own_end, *ends])


@pytest.mark.parametrize(
    ("end", "high_watermark", "epoch_start", "may"),
    [
        (10, 10, 5, True),
        (12, 10, 12, True),
        (9, 10, 5, False),
        (11, 10, 12, False),
        (UNKNOWN_OFFSET, 0, 0, False),
    ],
    ids=["has all", "has more", "lacks what is safe", "before the reign", "never asked"],
)
def test_who_may_join(end: int, high_watermark: int, epoch_start: int, may: bool) -> None:
    assert may_join(follower(end), high_watermark, epoch_start) is may


class TestAFollowerOverTime:
    def test_one_that_is_at_the_end_is_caught_up_now(self) -> None:
        it = Follower()
        it.fetched(10, 10, 1000)
        assert it.caught_up_ms == 1000

    def test_one_that_reaches_the_end_of_its_last_fetch_was_caught_up_then(self) -> None:
        it = Follower()
        it.fetched(5, 10, 1000)
        assert it.caught_up_ms == LONG_AGO_MS
        it.fetched(10, 20, 2000)
        assert it.caught_up_ms == 1000
        it.fetched(20, 30, 3000)
        assert it.caught_up_ms == 2000

    def test_one_that_gets_ever_further_behind_is_not(self) -> None:
        it = Follower(0)
        for at in range(1, 50):
            it.fetched(at, at * 10, at * 1000)
        assert it.caught_up_ms == 0

    def test_one_that_comes_back_with_less_starts_anew(self) -> None:
        it = Follower(500)
        it.fetched(10, 10, 1000)
        it.fetched(4, 10, 2000)
        assert not it.keeps_up(10, 2000, LagBounds(30_000))
        it.fetched(10, 10, 3000)
        assert it.keeps_up(10, 3000, LagBounds(30_000))

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 100)), max_size=30))
    def test_it_is_never_called_caught_up_at_a_time_when_it_lacked_something(
        self, steps: list[tuple[int, int, int]]
    ) -> None:
        it, end, leader_end, now_ms = Follower(), 0, 0, 0
        ends_at: list[tuple[int, int]] = []
        for moved, appended, passed_ms in steps:
            leader_end += appended
            now_ms += passed_ms
            end = min(end + moved, leader_end)
            it.fetched(end, leader_end, now_ms)
            ends_at.append((now_ms, leader_end))
            if it.caught_up_ms != LONG_AGO_MS:
                assert end >= min(then for at_ms, then in ends_at if at_ms == it.caught_up_ms)


@pytest.mark.parametrize(
    ("end", "caught_up_ms", "bounds", "gone"),
    [
        (100, LONG_AGO_MS, LagBounds(1000), False),
        (99, 9000, LagBounds(1000), False),
        (99, 8999, LagBounds(1000), True),
        (90, 10_000, LagBounds(1000, messages=10), False),
        (89, 10_000, LagBounds(1000, messages=10), True),
        (UNKNOWN_OFFSET, 9000, LagBounds(1000), False),
        (UNKNOWN_OFFSET, 8999, LagBounds(1000), True),
    ],
    ids=["at the end", "in time", "too late", "few behind", "many behind", "has time to come", "never came"],
)
def test_who_has_fallen_behind(end: int, caught_up_ms: int, bounds: LagBounds, gone: bool) -> None:
    followers = {2: follower(end, caught_up_ms)}
    assert fallen_behind((1, 2), followers, 100, 10_000, bounds) == ([2] if gone else [])


def test_the_leader_never_falls_behind_itself() -> None:
    assert fallen_behind((1,), {}, 100, 10_000, LagBounds(0, messages=0)) == []


class TestAProposal:
    def test_to_grow_makes_the_newcomer_waited_for_but_not_counted(self) -> None:
        in_sync = InSync((1, 2)).propose((1, 2, 3))
        assert in_sync.committed == (1, 2)
        assert in_sync.maximal == (1, 2, 3)

    def test_to_shrink_keeps_everyone_until_it_is_confirmed(self) -> None:
        in_sync = InSync((1, 2, 3)).propose((1, 2))
        assert in_sync.maximal == in_sync.committed == (1, 2, 3)
        assert in_sync.confirm((1, 2)).maximal == (1, 2)

    def test_that_was_refused_leaves_what_was(self) -> None:
        assert InSync((1, 2)).propose((1,)).withdraw() == InSync((1, 2))

    def test_is_the_only_one(self) -> None:
        with pytest.raises(AssertionError):
            InSync((1, 2)).propose((1,)).propose((1, 2))
