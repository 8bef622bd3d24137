"""Many seeds of simulated transactions, or one: see `testing/seeds.py`."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from tidelog.testing.seeds import SeedRunner
from tidelog.testing.transaction_sim.simulation import Report, TransactionSimulation

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_seed(seed: int) -> Report:
    logging.disable(logging.CRITICAL)
    return TransactionSimulation(seed).run()


def main(arguments: Sequence[str]) -> int:
    told: Counter[str] = Counter()
    faults: Counter[str] = Counter()

    def take(report: Report) -> None:
        told.update(committed=report.committed, aborted=report.aborted, unknown=report.unknown)
        faults.update(report.faults)

    return SeedRunner(
        "tidelog.testing.transaction_sim",
        "sim-transactions",
        run_seed,
        lambda seed: TransactionSimulation(seed, echo=print).run(),
        seeds_default=1000,
        told_every=500,
        seeds_at_once=10,
        take=take,
        summary=lambda: f"{_listed('transactions', told)}\n{_listed('faults', faults)}",
    ).main(arguments)


def _listed(what: str, counts: Counter[str]) -> str:
    return f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())
