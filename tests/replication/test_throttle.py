"""Which replicas are held back, and that the rate is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.throttle import Allowance, is_throttled


@pytest.mark.parametrize(
    ("listed", "throttled"),
    [((), False), (("*",), True), (("0:1", "3:2"), True), (("3:1", "2:2"), False), (("13:2",), False)],
)
def test_a_replica_is_throttled_by_its_partition_and_broker(listed: tuple[str, ...], throttled: bool) -> None:
    assert is_throttled(listed, 3, 2) is throttled


def test_without_a_rate_nothing_is_held_back() -> None:
    allowance = Allowance()
    allowance.spend(10**12, 0)
    assert allowance.wait_ms(0) == 0


def test_debt_is_paid_off_by_the_rate() -> None:
    allowance = Allowance(1000)
    allowance.spend(3000, 0)
    assert allowance.wait_ms(0) == 3001
    assert allowance.wait_ms(2000) == 1001
    assert allowance.wait_ms(3000) == 0


def test_a_rate_of_nothing_lets_nothing_pass_once_something_was_spent() -> None:
    allowance = Allowance(0)
    allowance.spend(1, 0)
    assert allowance.wait_ms(10**6) > 0
    allowance.set_rate(1000)
    assert allowance.wait_ms(2 * 10**6) == 0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 2000)), max_size=50))
def test_no_more_is_spent_than_was_earned_and_one_portion(steps: list[tuple[int, int]]) -> None:
    rate, now_ms, spent, largest = 1000, 0, 0, 0
    allowance = Allowance(rate)
    for size, passed_ms in steps:
        now_ms += passed_ms
        if allowance.wait_ms(now_ms) == 0:
            allowance.spend(size, now_ms)
            spent += size
            largest = max(largest, size)
    assert spent <= rate * now_ms / 1000 + rate + largest
