"""The process that Spark forks its Python workers from, with the modules they need loaded before the fork.

Run by Spark as `python -m tidelog.pipelines.session.worker_daemon`. None of the modules starts a thread of Python's: it
would not survive the fork, and what it held would stay held. The threads that Arrow's allocator and NumPy's OpenBLAS
start in C are put right by those libraries themselves, in handlers that run at each fork.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyspark import daemon

if TYPE_CHECKING:
    from collections.abc import Iterable

PRELOADED: Final = (
    "pyspark.worker",
    "pyspark.sql.datasource",
    "tidelog.pipelines.sink.writing",
    "tidelog.pipelines.source.reading",
)


def preload(more: Iterable[str] = ()) -> None:
    """What cannot be loaded here is left to the worker, which can say what is missing."""
    for module in (*PRELOADED, *more):
        with contextlib.suppress(ImportError):
            import_module(module)


if __name__ == "__main__":
    preload()
    daemon.manager()
