"""Log lines that strangers can provoke, kept from flooding the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.clock import Clock

LINES_PER_PERIOD = 10
PERIOD_S = 10.0

_log = logging.getLogger("tidelog.net")


class Complaints:
    """Logs the first few complaints of a kind in each period; the next period says how many were left out.

    `kind` is one of a handful of fixed words, never something a peer chose.
    """

    __slots__ = ("_clock", "_kinds")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[str, _Period] = {}

    def warn(self, kind: str, message: str) -> None:
        now = self._clock.monotonic()
        period = self._kinds.get(kind)
        if period is None or now - period.start >= PERIOD_S:
            if period is not None and period.count > LINES_PER_PERIOD:
                _log.warning("%s: %d similar messages were left out", kind, period.count - LINES_PER_PERIOD)
            period = self._kinds[kind] = _Period(now)
        period.count += 1
        if period.count <= LINES_PER_PERIOD:
            _log.warning("%s: %s", kind, message)


class _Period:
    __slots__ = ("count", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.count = 0
