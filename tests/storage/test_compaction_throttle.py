"""The limit on what a cleaning reads and writes per second."""

from __future__ import annotations

from tidelog.storage.compaction.throttle import Throttle


class SleptClock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds


def test_over_time_no_more_goes_through_than_is_allowed() -> None:
    clock = SleptClock()
    throttle = Throttle(1000.0, clock, clock.sleep)
    for _ in range(500):
        throttle.used(20)
    assert 9.8 <= clock.now_s - 100 <= 10.0


def test_time_in_which_nothing_was_done_is_not_saved_up() -> None:
    clock = SleptClock()
    throttle = Throttle(1000.0, clock, clock.sleep)
    clock.now_s += 3600
    before = clock.now_s
    throttle.used(5000)
    assert clock.now_s - before == 5.0


def test_without_a_limit_nobody_waits() -> None:
    clock = SleptClock()
    throttle = Throttle(1.7e308, clock, clock.sleep)
    throttle.used(1 << 40)
    assert clock.now_s == 100.0
