"""The nursery of this process's sessions, started with the first of them and ended with this process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODULE: Final = "tidelog.pipelines.session.nursery"
_ENDED_WITHIN_S: Final = 5


@functools.cache
def nursery() -> str | None:
    """Where to ask it for children. None: there is none, and everything works without it, too."""
    if sys.platform != "linux":  # elsewhere system libraries do not take it well to be loaded before a fork
        return None
    try:
        process = NurseryProcess(os.environ)
    except OSError:
        return None
    atexit.register(process.end)
    return str(process.place)


class NurseryProcess:
    """OSError: it could not be started. It also ends with the process that made this, however that ends."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._owner = os.getpid()
        self.place = Path(tempfile.mkdtemp(prefix="tidelog-python-")) / "nursery"
        try:
            self._process = _start(self.place, environment)
        except OSError:
            remove(self.place)
            raise

    def end(self) -> None:
        if os.getpid() != self._owner or self._process.stdin is None:
            return
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDED_WITHIN_S)
        remove(self.place)  # which it does itself, unless it was killed


def _start(place: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _MODULE, str(listener.fileno()), str(place)],
            env=_as_workers_have_it(environment),
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _as_workers_have_it(environment: Mapping[str, str]) -> dict[str, str]:
    """What Spark sets for its workers, and what is read only when Python or a library starts."""
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **environment}


def remove(place: Path) -> None:
    """The socket, and the directory made for it."""
    with contextlib.suppress(OSError):
        place.unlink(missing_ok=True)
        place.parent.rmdir()
