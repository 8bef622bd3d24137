"""The command line of a simulation: many seeds on all cores, and how to replay those that fail; or one alone, with all
that happens in it."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TAIL_LINES = 60
_HASH_SEED = "0"
"""Sets of texts keep the same order in every process then: a failing seed replays exactly."""


class Story(Protocol):
    """What is known of a run when it is over."""

    @property
    def seed(self) -> int: ...

    @property
    def violation(self) -> object: ...

    @property
    def trace(self) -> Sequence[str]: ...


S = TypeVar("S", bound=Story)


@dataclass(frozen=True)
class SeedRunner(Generic[S]):
    module: str
    """As `python -m` names it."""
    target: str
    """As make names it."""
    run: Callable[[int], S]
    """One seed, in a process of the pool. A function of a module."""
    run_aloud: Callable[[int], S]
    """One seed, with all that happens in it."""
    seeds_default: int
    told_every: int
    """Progress is told after so many seeds."""
    seeds_at_once: int = 1
    """How many are handed to a process together."""
    take: Callable[[S], None] = lambda _story: None
    """Is given each story, to gather figures."""
    summary: Callable[[], str | None] = lambda: None
    """Those figures, when all is over."""

    def main(self, arguments: Sequence[str]) -> int:
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=__doc__)
        parser.add_argument(
            "--seeds",
            type=int,
            default=self.seeds_default,
            help=f"how many seeds to run (default {self.seeds_default})",
        )
        parser.add_argument("--first", type=int, default=1, help="the first of them (default 1)")
        parser.add_argument("--seed", type=int, help="run this one alone, and show all that happens")
        parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
        options = parser.parse_args(arguments)
        if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
            os.environ["PYTHONHASHSEED"] = _HASH_SEED
            os.execv(sys.executable, [sys.executable, "-m", self.module, *arguments])  # noqa: S606 - itself
        if options.seed is not None:
            return self._run_one(options.seed)
        return self._run_many(range(options.first, options.first + options.seeds), options.processes)

    def _run_one(self, seed: int) -> int:
        logging.basicConfig(level=logging.INFO, format="                 %(name)s: %(message)s", stream=sys.stdout)
        story = self.run_aloud(seed)
        print(story)  # noqa: T201 - what it was asked for
        return 1 if story.violation else 0

    def _run_many(self, seeds: Sequence[int], processes: int) -> int:
        clock = SystemClock()
        started = clock.monotonic()
        failed: list[S] = []
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for done, story in enumerate(pool.imap_unordered(self.run, seeds, chunksize=self.seeds_at_once), 1):
                self.take(story)
                if story.violation:
                    failed.append(story)
                    print(f"\n{story}\n" + "\n".join(story.trace[-_TAIL_LINES:]))  # noqa: T201
                if done % self.told_every == 0 or done == len(seeds):
                    rate = done / (clock.monotonic() - started) * 60
                    print(f"{done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.0f} a minute", flush=True)  # noqa: T201
        figures = self.summary()
        if figures is not None:
            print(figures)  # noqa: T201
        for story in sorted(failed, key=lambda each: each.seed):
            print(f"{story}\n  replay: make {self.target} SEED={story.seed}")  # noqa: T201
        return 1 if failed else 0
