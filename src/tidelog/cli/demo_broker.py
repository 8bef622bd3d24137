"""Starts a broker for the demo: its own process, a temporary directory, a free port."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from types import TracebackType

_READY = re.compile(r"ready: broker \d+ listens on (\S+)")
_READY_WITHIN_S = 15.0
_STOPPED_WITHIN_S = 5.0
_POLL_S = 0.02
_LOG_TAIL_LINES = 15


class DemoBroker:
    def __init__(self, *, keep: bool) -> None:
        self.keep = keep
        self.directory = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
        self.bootstrap = ""
        self.ready_after_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._clock = SystemClock()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tidelog", "broker"]
        command += ["--set", f"log.dirs={self.directory / 'data'}", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
        started_s = self._clock.monotonic()
        with self.log.open("wb") as log:
            # A broker that is kept must not get the Ctrl-C that is meant for whatever runs here next.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=self.keep
            )
        try:
            self._wait_until_ready(started_s)
        except BaseException:
            self._end()
            raise
        return self

    def _wait_until_ready(self, started_s: float) -> None:
        assert self._process is not None
        while True:
            text = self.log.read_text(errors="replace")
            found = _READY.search(text)
            self.ready_after_s = self._clock.monotonic() - started_s
            if found:
                self.bootstrap = found[1].rstrip(",")
                return
            if self._process.poll() is not None or self.ready_after_s > _READY_WITHIN_S:
                tail = "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])
                raise click.ClickException(f"the demo's broker did not start; its log ends:\n{tail}")
            try:
                self._process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.keep or error is not None:
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
