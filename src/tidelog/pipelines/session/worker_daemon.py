"""The process that Spark forks its Python workers from, with the modules they need loaded before the fork.

Run by Spark as `python -m tidelog.pipelines.session.worker_daemon`. Only modules that start no threads are loaded: a
thread does not survive a fork, and what it held stays held.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Final

from pyspark import daemon

PRELOADED: Final = (
    "pyspark.worker",
    "pyspark.sql.datasource",
    "tidelog.pipelines.sink.writing",
    "tidelog.pipelines.source.reading",
)


def preload() -> None:
    """What cannot be loaded here is left to the worker, which can say what is missing."""
    for module in PRELOADED:
        with contextlib.suppress(ImportError):
            import_module(module)


if __name__ == "__main__":
    preload()
    daemon.manager()
