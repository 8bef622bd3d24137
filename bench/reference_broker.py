"""The plain C peer: compiled when first needed, one process per log file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

SOURCE = Path(__file__).parent / "reference" / "broker.c"


class NoReferenceError(Exception):
    """There is no C peer to compare with; the message says why."""


def compiled(cache_dir: Path) -> Path:
    """The program, made anew when its source is newer."""
    program = cache_dir / "reference-broker"
    if program.exists() and program.stat().st_mtime > SOURCE.stat().st_mtime:
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoReferenceError("no C compiler: install cc for the ratios")
    cache_dir.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [compiler, "-O2", "-msse4.2", "-o", str(program), str(SOURCE)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NoReferenceError("the C peer does not compile here: " + done.stderr.strip().partition("\n")[0])
    return program


class ReferenceBroker:
    """One C broker on an empty log; its log goes with it."""

    def __init__(self, program: Path, log_file: Path) -> None:
        self._log_file = log_file
        self._process = subprocess.Popen([program, log_file], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._log_file.unlink(missing_ok=True)
