"""Some seeds of the simulation of transactions, and that a seed decides everything. `make sim-transactions`: many."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tidelog.testing.transaction_sim.simulation import TransactionSimulation

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = 50


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(10_001, 10_201, SEEDS))
def test_transactions_keep_their_promises(first: int) -> None:
    committed = 0
    for seed in range(first, first + SEEDS):
        report = TransactionSimulation(seed).run()
        assert report.violation is None, f"{report}\nreplay: make sim-transactions SEED={seed}"
        committed += report.committed
    assert committed > SEEDS


@pytest.mark.parametrize("seed", [3, 7])
def test_one_seed_gives_one_run(seed: int) -> None:
    first, again, other = (TransactionSimulation(each).run() for each in (seed, seed, seed + 1))
    assert first.fingerprint == again.fingerprint
    assert first.steps == again.steps
    assert first.fingerprint != other.fingerprint


def test_a_run_does_not_depend_on_the_process() -> None:
    """Not on where objects lie in memory, nor on how texts are hashed."""
    code = (
        "from tidelog.testing.transaction_sim.simulation import TransactionSimulation\n"
        "print([TransactionSimulation(seed).run().fingerprint for seed in range(1, 21)])"
    )
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
