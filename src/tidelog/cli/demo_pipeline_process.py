"""Runs the demo's pipeline as a user would: `tidelog pipeline run`, in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

import click

from tidelog.cli.demo_pipeline import FILE
from tidelog.pipelines.runner.directory import PipelineDirectory
from tidelog.pipelines.runner.progress import Figures

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

NAME: Final = "shop"
_QUICK: Final = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Whoever watches for half a minute wants Java to start quickly, not to become quick."""
_STOPPED_WITHIN_S: Final = 30.0
_INTERRUPTED_WITHIN_S: Final = 3.0
"""Nobody needs what it would leave, and somebody waits."""
_LOG_TAIL_LINES: Final = 15


class DemoPipeline:
    def __init__(self, bootstrap: str, directory: Path, *, keep: bool) -> None:
        self.file = directory / FILE.name
        self.state = directory / "pipelines"
        self.output = directory / "shop"
        self.log = directory / "pipeline.log"
        self._bootstrap = bootstrap
        self._keep = keep
        self._directory = PipelineDirectory(self.state, NAME)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def parquet(self) -> Path:
        return self.output / "purchases"

    def __enter__(self) -> Self:
        shutil.copyfile(FILE, self.file)  # where whoever keeps it can change it
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(self.file), "--dir", str(self.state)]
        command += ["--bootstrap", self._bootstrap, "--conf", _QUICK]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SHOP_DIR": str(self.output)},
                start_new_session=True,  # Ctrl-C is for us: we end it
            )
        return self

    def figures(self) -> list[Figures]:
        """How far its queries are; none while Spark starts. Fails when it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
            raise click.ClickException(f"the demo's pipeline has ended; its log ends:\n{tail}")
        return [Figures(**query) for query in self._directory.status().get("queries", ())]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keep and error is None:
            return
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOPPED_WITHIN_S if error is None else _INTERRUPTED_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
