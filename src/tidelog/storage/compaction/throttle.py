"""`log.cleaner.io.max.bytes.per.second`: whoever reads or writes too fast is made to wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.clock import Clock

BURST_S = 0.1
"""So much of a second's share may be used at once: waits shorter than that are not worth a system call."""


class Throttle:
    __slots__ = ("_bytes_per_s", "_clock", "_paid_until", "_sleep")

    def __init__(self, bytes_per_s: float, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._paid_until = 0.0

    def used(self, count: int) -> None:
        """`count` bytes were read or written. Returns when the next ones may be."""
        now = self._clock.monotonic()
        self._paid_until = max(self._paid_until, now) + count / self._bytes_per_s
        ahead_s = self._paid_until - now
        if ahead_s > BURST_S:
            self._sleep(ahead_s)
