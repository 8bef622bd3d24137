"""What a Python worker of Spark does between two tasks, made short.

Spark's workers look for garbage after every task, through everything that is loaded: with Arrow and pandas that takes
tens of milliseconds, for which the next task waits. What is there after the first task is there to stay, so from then
on it is left out.
"""

from __future__ import annotations

import gc
import os

from pyspark import TaskContext

_done_in: int | None = None


def shorten_rests() -> None:
    """To be called by tasks when they have loaded what they need. Outside of Spark's workers it does nothing."""
    global _done_in
    if _done_in != os.getpid() and TaskContext.get() is not None:
        _done_in = os.getpid()
        gc.collect()
        gc.freeze()
