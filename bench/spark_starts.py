"""How long a program takes from nothing to a first result: Python, Java, Spark's session, a query."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.spark_start import OUR_SESSION, SPARKS_SESSION

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE_S = 300.0


def first_results(bootstrap: str, topic: str, count: int, starts: int, jars: str | None) -> tuple[float, float]:
    """Seconds with our session, and with Spark's own; the best of some starts, which take turns."""
    ways = (OUR_SESSION, SPARKS_SESSION)
    arguments = (bootstrap, topic, jars or "")
    _first_result(OUR_SESSION, arguments, count)  # which leaves an archive of classes for those that follow
    found = [[_first_result(way, arguments, count) for way in ways] for _ in range(starts)]
    ours, defaults = (min(of) for of in zip(*found, strict=True))
    return ours, defaults


def _first_result(way: str, arguments: Sequence[str], count: int) -> float:
    print(f"measuring: from nothing, {way}", file=sys.stderr)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.spark_start", way, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    took_s = time.perf_counter() - began
    _, errors = process.communicate(timeout=_PATIENCE_S)
    if process.returncode or line != f"counted {count}\n":
        raise RuntimeError(f"{way} said {line!r} and ended with {process.returncode}: {errors[-2000:]}")
    return took_s
