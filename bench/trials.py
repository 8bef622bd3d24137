"""One measured run, and the best of several.

Noise only ever slows down, so that the fastest of some trials says most about the program. On a busy machine even that
says little: then compare the processor time that a peer spent per unit, for which the trial that spent least counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from bench.process_facts import spent_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load import Load


class Peer(Protocol):
    """A broker that runs."""

    @property
    def port(self) -> int: ...

    @property
    def pid(self) -> int: ...


class Trial(NamedTuple):
    rate: float
    """Units per second."""
    cpu_s: float = 0.0
    """Processor time of the peer per unit."""


def measure(peer: Peer, run: Callable[[], Load], units_per_request: float = 1.0) -> Trial:
    with spent_by(peer.pid) as spent:
        done = run()
    return Trial(done.per_second * units_per_request, spent.cpu_s / done.requests / units_per_request)


def best(trials: int, *contestants: Callable[[], Trial]) -> list[Trial]:
    """The best of each, taking turns, so that a slow spell of the machine hits them alike."""
    done: list[list[Trial]] = [[] for _ in contestants]
    for _ in range(trials):
        for results, run in zip(done, contestants, strict=True):
            results.append(run())
    return [Trial(max(r.rate for r in results), min(r.cpu_s for r in results)) for results in done]
