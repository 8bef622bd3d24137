"""Runs many seeds on all cores, and tells how to replay those that fail; or one alone, with all that happens in it."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tidelog.clock import SystemClock
from tidelog.testing.transaction_sim.simulation import Report, TransactionSimulation

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL_LINES = 60
_HASH_SEED = "0"
"""Sets of texts keep the same order in every process then: a failing seed replays exactly."""


def run_seed(seed: int) -> Report:
    logging.disable(logging.CRITICAL)
    return TransactionSimulation(seed).run()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tidelog.testing.transaction_sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run (default 1000)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default 1)")
    parser.add_argument("--seed", type=int, help="run this one alone, and show all that happens")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        os.environ["PYTHONHASHSEED"] = _HASH_SEED
        program = [sys.executable, "-m", "tidelog.testing.transaction_sim", *arguments]
        os.execv(sys.executable, program)  # noqa: S606 - itself
    if options.seed is not None:
        return _run_one(options.seed)
    return _run_many(range(options.first, options.first + options.seeds), options.processes)


def _run_one(seed: int) -> int:
    logging.basicConfig(level=logging.INFO, format="                 %(name)s: %(message)s", stream=sys.stdout)
    report = TransactionSimulation(seed, echo=print).run()
    print(report)  # noqa: T201 - what it was asked for
    return 1 if report.violation else 0


def _run_many(seeds: Sequence[int], processes: int) -> int:
    clock = SystemClock()
    started = clock.monotonic()
    failed: list[Report] = []
    told: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, report in enumerate(pool.imap_unordered(run_seed, seeds, chunksize=10), 1):
            told.update(committed=report.committed, aborted=report.aborted, unknown=report.unknown)
            faults.update(report.faults)
            if report.violation:
                failed.append(report)
                print(f"\n{report}\n" + "\n".join(report.trace[-_TAIL_LINES:]))  # noqa: T201
            if done % 500 == 0 or done == len(seeds):
                rate = done / (clock.monotonic() - started) * 60
                print(f"{done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.0f} a minute", flush=True)  # noqa: T201
    print(_listed("transactions", told), _listed("faults", faults), sep="\n")  # noqa: T201
    for report in sorted(failed, key=lambda each: each.seed):
        print(f"{report}\n  replay: make sim-transactions SEED={report.seed}")  # noqa: T201
    return 1 if failed else 0


def _listed(what: str, counts: Counter[str]) -> str:
    return f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())
