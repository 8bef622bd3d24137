"""What a run is like: who writes, and what goes wrong. All of it follows from the seed unless given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.testing.transaction_sim.network import Weather
from tidelog.testing.transaction_sim.producer import Habits

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

DEFAULT_WEIGHTS: Mapping[str, float] = {
    "coordinator moves": 3.0,
    "coordinator starts over": 1.0,
    "coordinator refuses": 1.0,
    "leader moves": 4.0,
    "broker dies": 1.5,
    "broker pauses": 2.0,
    "producer pauses": 2.0,
    "producer dies": 2.0,
    "second life": 2.0,
    "storm": 1.0,
    "no producer ids": 0.5,
}


@dataclass(frozen=True, slots=True)
class Shape:
    habits: tuple[Habits, ...]
    weather: Weather
    weights: Mapping[str, float]
    mean_gap_s: float = 0.6
    duration_s: float = 10.0
    partitions: int = 3
    brokers: int = 3
    first_epochs: tuple[int, ...] = ()
    """For each transactional id, the epoch that it has before the run; -1 if it is new."""

    @classmethod
    def choose(cls, chance: random.Random) -> Shape:
        variety = chance.choice((0.2, 0.6))
        chosen = {kind: weight for kind, weight in DEFAULT_WEIGHTS.items() if chance.random() < variety}
        weather = Weather(
            lost=chance.choice((0.0, 0.02, 0.1)),
            repeated=chance.choice((0.0, 0.1, 0.3)),
            late=chance.choice((0.0, 0.05, 0.15)),
        )
        tidy = weather.repeated == 0.0 and chance.random() < 0.5
        habits = tuple(_choose_habits(number, chance, tidy=tidy) for number in range(chance.randint(1, 3)))
        nearly_used_up = chance.random() < 0.25
        return cls(
            habits,
            weather,
            chosen or DEFAULT_WEIGHTS,
            mean_gap_s=chance.choice((0.3, 1.0, 2.5)),
            duration_s=chance.choice((5.0, 10.0)),
            partitions=chance.randint(1, 3),
            first_epochs=tuple(chance.randint(32760, 32766) if nearly_used_up else -1 for _ in habits),
        )


def _choose_habits(number: int, chance: random.Random, *, tidy: bool) -> Habits:
    version = chance.choice((0, 0, 2, 2, 2))
    two_phase = version > 0 and chance.random() < 0.3
    return Habits(
        f"writer-{number}",
        version,
        two_phase=two_phase,
        timeout_ms=chance.choice((1000, 3000, 8000)),
        mixed=not two_phase and chance.random() < 0.2,
        tidy=tidy,
    )
