"""A few seeds of the simulator, and that a seed decides everything. `make sim` runs many."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tidelog.testing.sim.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [*range(21, 29), 58, 792])
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    report = Simulation(seed).run()
    assert report.violation is None, f"{report}\nreplay: make sim SEED={seed}"
    assert report.acknowledged > 0


def test_one_seed_gives_one_run() -> None:
    first, again, other = (Simulation(seed).run() for seed in (11, 11, 12))
    assert first.fingerprint == again.fingerprint
    assert first.steps == again.steps
    assert first.fingerprint != other.fingerprint


def test_a_run_does_not_depend_on_the_process() -> None:
    """Not on where objects lie in memory, nor on how texts are hashed."""
    code = "from tidelog.testing.sim.simulation import Simulation; print(Simulation(13).run().fingerprint)"
    seen = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1
