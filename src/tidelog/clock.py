"""The one place that reads time.

Everything that needs the time is given a `Clock`, so that tests and the simulator decide what time it is.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: for record timestamps and retention, never for waiting."""

    def monotonic(self) -> float:
        """Seconds that never go back: for timeouts and measuring."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
