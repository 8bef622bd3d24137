"""What ends a run is told as what it is. A stand-in plays the session: nothing here needs Java."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from tidelog.cli.pipeline_display import choose_display
from tidelog.pipelines import PipelineError
from tidelog.pipelines.definition.loading import load
from tidelog.pipelines.runner import running
from tidelog.pipelines.runner.running import RunOptions, run_pipeline

if TYPE_CHECKING:
    from pathlib import Path

RATE = """
sources: {ticks: {rate: 1}}
sinks: {shown: {from: ticks, console: {}}}
"""


class Session:
    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        raise Py4JNetworkError("it has gone")


def run(tmp_path: Path, metrics: tuple[str, int] | None = None) -> None:
    (tmp_path / "ticks.yaml").write_text(RATE, encoding="utf-8")
    pipeline = load(tmp_path / "ticks.yaml")
    options = RunOptions(tmp_path / "state", metrics=metrics)
    with choose_display(pipeline.name, as_json=True) as display:
        run_pipeline(pipeline, options, display, threading.Event(), threading.Event())


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), PipelineError, "Spark's Java process has ended"),
        (Py4JError("An error occurred while calling o1.isActive"), PipelineError, "Spark's Java process has ended"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), PipelineError, "Spark's Java process has ended"),
        (EOFError(), PipelineError, "Spark's Java process has ended"),
        (BrokenPipeError(errno.EPIPE, "nobody reads"), BrokenPipeError, "nobody reads"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), PipelineError, "^No space left on device$"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x"), PipelineError, "^/x: No space left on device$"),
        (PipelineError("shown: no such column"), PipelineError, "^shown: no such column$"),
    ],
)
def test_only_a_lost_java_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception], told: str
) -> None:
    session = Session()

    def fail(*_arguments: Any) -> None:
        raise error

    monkeypatch.setattr(running, "_session", lambda *_: session)
    monkeypatch.setattr(running, "_add_queries", fail)
    with pytest.raises(raised, match=told):
        run(tmp_path)
    assert session.stopped


def test_py4j_is_not_heard_as_well(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    root.addFilter(running.is_not_of_py4j)
    try:
        for place in ("/x/py4j/java_gateway.py", "/x/mine.py"):
            exec(compile(f"import logging; logging.error('from {place}')", place, "exec"), {})
    finally:
        root.removeFilter(running.is_not_of_py4j)
    assert [record.getMessage() for record in caplog.records] == ["from /x/mine.py"]


def test_a_taken_port_is_told_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_session", lambda *_: pytest.fail("Spark was started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PipelineError, match=rf"at 127.0.0.1:{port} \(Address already in use\): .*--metrics-port"):
            run(tmp_path, ("127.0.0.1", port))
