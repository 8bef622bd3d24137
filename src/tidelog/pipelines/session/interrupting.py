"""A start of Spark that is interrupted leaves nothing behind.

PySpark forgets a Java that has not reported yet, and removes the directory that it is to report in. Java then waits for
ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def ended_if_interrupted() -> Iterator[None]:
    """Ends what was started within, unless PySpark has it in hand."""
    from pyspark import SparkContext  # noqa: PLC0415 - only now we know that it is there

    before = children()
    try:
        yield
    except KeyboardInterrupt:
        if SparkContext._gateway is None:  # noqa: SLF001 - nothing else tells
            for child in children() - before:
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGTERM)
        raise


def children() -> set[int]:
    """Of this process. None, where the system does not tell."""
    found: set[int] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, listed.read_text().split()))
    return found
