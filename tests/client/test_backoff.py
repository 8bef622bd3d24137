from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.backoff import Backoff, Deadline


@given(attempt=st.integers(0, 10_000), chance=st.floats(0, 1, exclude_max=True), first=st.integers(1, 5000))
def test_a_delay_stays_within_a_fifth_of_its_doubling(attempt: int, chance: float, first: int) -> None:
    backoff = Backoff(first, 10_000)
    base_s = min(10_000, first * 2 ** min(attempt, 30)) / 1000
    assert base_s * 0.799 <= backoff.delay_s(attempt, chance) <= base_s * 1.201


def test_delays_double_up_to_the_limit() -> None:
    delays = [Backoff(100, 1000).delay_s(attempt, 0.5) for attempt in range(6)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_deadline_counts_down_and_stops_at_zero() -> None:
    async def scenario() -> None:
        assert 59 < Deadline(60_000).remaining_s <= 60
        past = Deadline(0)
        assert past.remaining_s == 0
        assert past.passed

    asyncio.run(scenario())
