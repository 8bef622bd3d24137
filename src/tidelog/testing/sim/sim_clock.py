"""Time as one simulated machine reads it. Wall clocks of machines differ; the passing of time does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.sim.timeline import Timeline

EPOCH_MS = 1_750_000_000_000
"""Some day in 2025: records and retention need a date."""


class SimClock:
    """A `tidelog.clock.Clock`."""

    def __init__(self, timeline: Timeline, ahead_ms: int = 0) -> None:
        self._timeline = timeline
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self._ahead_ms + int(self._timeline.now * 1000)

    def monotonic(self) -> float:
        return self._timeline.now
