"""Randomness from one seed, in streams: asking one for more does not change what another gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Chance:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")  # noqa: S311 - chance must repeat


def weighted(chance: random.Random, choices: Sequence[tuple[str, float]]) -> str:
    """One of the names, each as often as its weight says."""
    return chance.choices([name for name, _ in choices], [weight for _, weight in choices])[0]


def exponential_gaps(chance: random.Random, mean_s: float, until_s: float) -> Iterator[float]:
    """Moments before `until_s`, at random, `mean_s` apart on average."""
    now = chance.expovariate(1 / mean_s)
    while now < until_s:
        yield now
        now += chance.expovariate(1 / mean_s)
