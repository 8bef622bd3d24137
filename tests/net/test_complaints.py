from __future__ import annotations

from typing import TYPE_CHECKING

from net_ends import SetClock

from tidelog.net.complaints import LINES_PER_PERIOD, PERIOD_S, Complaints

if TYPE_CHECKING:
    import pytest


def test_a_flood_is_cut_off_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    complaints = Complaints(clock)
    for number in range(LINES_PER_PERIOD + 25):
        complaints.warn("flood", f"drop {number}")
    assert len(caplog.messages) == LINES_PER_PERIOD
    complaints.warn("other", "is heard")
    assert caplog.messages[-1] == "other: is heard"
    clock.seconds += PERIOD_S
    complaints.warn("flood", "again")
    assert caplog.messages[-2:] == ["flood: 25 similar messages were left out", "flood: again"]


def test_few_complaints_are_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    complaints = Complaints(clock)
    for number in range(50):
        complaints.warn("drip", f"drop {number}")
        clock.seconds += PERIOD_S
    assert caplog.messages == [f"drip: drop {number}" for number in range(50)]
