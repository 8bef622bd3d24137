"""Waiting for something to become true, with a deadline and a message instead of a guess at how long it takes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.clock import Clock

T = TypeVar("T")

_SYSTEM_CLOCK = SystemClock()


def eventually(
    probe: Callable[[], T | None],
    waiting_for: str,
    *,
    within_s: float = 15.0,
    every_s: float = 0.01,
    clock: Clock = _SYSTEM_CLOCK,
) -> T:
    """The first value of `probe` that is neither None nor false. What the probe raises is the caller's.

    The deadline is for hanging, not for slowness: give it far more time than a slow machine needs.
    """
    deadline = clock.monotonic() + within_s
    pause = threading.Event()  # never set: its timed wait is the pause between two probes
    while True:
        value = probe()
        if value is not None and value is not False:
            return value
        if clock.monotonic() >= deadline:
            raise TimeoutError(f"waited {within_s:g} s in vain for {waiting_for}; the last look gave {value!r}")
        pause.wait(every_s)
