"""The nursery of this process's sessions, started with the first of them and ended with this process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Final

from tidelog.pipelines.session.from_nursery import address
from tidelog.pipelines.session.python import NURSERY

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODULE: Final = "tidelog.pipelines.session.nursery"
_ENDED_WITHIN_S: Final = 5


@functools.cache
def nursery(python: str, *, apart: bool = False) -> str | None:
    """What to ask for children. None: there is none, and everything works without it, too."""
    if sys.platform != "linux":  # elsewhere system libraries do not take it well to be loaded before a fork
        return None
    try:
        process = NurseryProcess(python, os.environ, apart=apart)
    except OSError:
        return None
    atexit.register(process.end)
    return process.name


class NurseryProcess:
    """OSError: it could not be started. It also ends with the process that made this, however that ends. `apart`: it
    and its children are a group of their own."""

    def __init__(self, python: str, environment: Mapping[str, str], *, apart: bool = False) -> None:
        self._owner = os.getpid()
        self.name = f"tidelog-nursery-{uuid.uuid4().hex}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address(self.name))
            listener.listen()
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [python, "-m", _MODULE, str(listener.fileno())],
                env=_as_spark_has_it(environment),
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=apart,
            )

    def end(self) -> None:
        """Its children stay: they end with Java, which may have something to do yet."""
        if os.getpid() != self._owner:
            return
        self._process.terminate()  # its standard input may also be held open by a child of this process
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDED_WITHIN_S)
        assert self._process.stdin is not None
        self._process.stdin.close()


def _as_spark_has_it(environment: Mapping[str, str]) -> dict[str, str]:
    """What Spark sets for its Python, or some of it, and is read only when that or a library starts."""
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **environment, "PYTHONUNBUFFERED": "YES", NURSERY: ""}
