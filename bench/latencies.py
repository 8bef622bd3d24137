"""Waits, from the shortest to the longest. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Latencies(NamedTuple):
    ordered_s: list[float]

    def at(self, share: float) -> float:
        return self.ordered_s[round((len(self.ordered_s) - 1) * share)]
