"""Runs the pipelines of several files, each over all that there is, one after the other in one process.

python run_pipelines_once.py BOOTSTRAP DIR FILE...
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tidelog.cli.pipeline_display import LineDisplay
from tidelog.clock import SystemClock
from tidelog.pipelines.definition.loading import load
from tidelog.pipelines.runner.running import RunOptions, run_pipeline

CONF = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}


def main(bootstrap: str, directory: str, *files: str) -> None:
    for file in files:
        pipeline = load(Path(file))
        options = RunOptions(
            Path(directory), once=True, master="local[2]", conf=CONF, bootstrap=bootstrap, restarts_max=0
        )
        with LineDisplay(pipeline.name, SystemClock()) as display:
            run_pipeline(pipeline, options, display, threading.Event(), threading.Event())


if __name__ == "__main__":
    main(*sys.argv[1:])
