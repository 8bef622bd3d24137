"""How long to wait before trying again, and when to stop trying."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

_JITTER = 0.2
_DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `first_ms` up to `max_ms`, give or take a fifth, so that clients do not come back in step."""

    first_ms: int = 100
    max_ms: int = 1000

    def delay_s(self, attempt: int, chance: float | None = None) -> float:
        """The wait after failed attempt number `attempt`, counted from 0; `chance` in [0, 1) replaces the dice."""
        if chance is None:
            chance = random.random()  # noqa: S311 - spreads load, guards nothing
        base_ms = min(self.max_ms, self.first_ms << min(attempt, _DOUBLINGS_MAX))
        return base_ms / 1000 * (1 - _JITTER + 2 * _JITTER * chance)


class Deadline:
    """A point on the event loop's clock."""

    __slots__ = ("_at", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._at = asyncio.get_running_loop().time() + timeout_ms / 1000

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._at - asyncio.get_running_loop().time())

    @property
    def passed(self) -> bool:
        return self.remaining_s == 0.0
