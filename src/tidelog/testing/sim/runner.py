"""Many seeds of the simulated cluster, or one: see `testing/seeds.py`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.testing.seeds import SeedRunner
from tidelog.testing.sim.simulation import Report, Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_seed(seed: int) -> Report:
    logging.disable(logging.CRITICAL)
    return Simulation(seed).run()


def main(arguments: Sequence[str]) -> int:
    return SeedRunner(
        "tidelog.testing.sim",
        "sim",
        run_seed,
        lambda seed: Simulation(seed, echo=print).run(),
        seeds_default=100,
        told_every=10,
    ).main(arguments)
