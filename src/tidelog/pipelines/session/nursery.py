"""The process from which all Python of a local Spark is forked, with what it needs loaded once.

Spark starts half a dozen Python programs before a stream's first record is read, each to plan one thing, and each loads
PySpark, Arrow and the source anew, while Java waits. Here they are loaded while Java itself starts. The `python` that
Spark runs then is `from_nursery.py`, which hands its arguments and its files to this process and ends when its child
does; if this process is not there, or was started otherwise than that child would be, it becomes Python itself.

Run by a session as `python -m tidelog.pipelines.session.nursery FD PATH`: the listening socket and where it is. It ends
when its standard input, held by the process of the session, is closed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import runpy
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipelines.session.from_nursery import ACCEPTED, LENGTH, REFUSED
from tidelog.pipelines.session.nursery_process import remove
from tidelog.pipelines.session.worker_daemon import preload

if TYPE_CHECKING:
    from collections.abc import Mapping

PLANNERS: Final = (
    "pyspark_tidelog",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)

_STANDARD_FILES: Final = 3
_ASKED_WITHIN_S: Final = 5
_MESSAGE_BYTES_MAX: Final = 16 << 20
"""Far more than the arguments and the environment of a process may take."""

_READ_LATE: Final = re.compile(r"_?(PYSPARK|SPARK|TIDELOG|PYTHON)_.*|JAVA_HOME|_|PWD|OLDPWD|SHLVL")
"""What Spark sets for those that it starts, and nobody looks at before `become` has set it."""

_FOLLOWED: Final = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED"})
"""What Python does look at before, and `become` makes up for."""

_READ_ONCE: Final = {"PYTHONHASHSEED": frozenset({"random"}), "OMP_NUM_THREADS": frozenset[str]()}
"""Set here as workers have them, which is as good for whoever does not ask for something else; and what says that."""

_PARENT: Final = 0
"""Standard input, of which only the end is of interest."""


class Start(NamedTuple):
    """A program to run as, and with what."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    files: list[int]


class Nursery:
    """Forks children on demand and tells those who asked how they ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._asked: dict[int, socket.socket] = {}
        """By child: the connection of whoever asked for it."""
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)

    def serve(self) -> Start | None:
        """Returns in each child, with what it is to do, and here when the parent is gone."""
        signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
        signal.set_wakeup_fd(self._wakes.fileno())
        for file in (self._listener, self._woken, _PARENT):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _events in self._selector.select():
                if key.fd == _PARENT:
                    return None
                if key.fileobj is self._listener:
                    start = self._fork()
                    if start is not None:
                        return start
                elif key.fileobj is self._woken:
                    self._woken.recv(4096)
                    self._tell_of_ends()
                else:
                    self._left(key.data)

    def _fork(self) -> Start | None:
        """What to do, in the child; None here."""
        connection, _address = self._listener.accept()
        connection.settimeout(_ASKED_WITHIN_S)
        try:
            start = receive(connection)
        except (OSError, ValueError):
            connection.close()
            return None
        child = self._child_for(start, connection)
        if child == 0:
            self._close()
            connection.close()
            return start
        _close_all(start.files)
        if child is None:
            connection.close()
        else:
            self._asked[child] = connection
            self._selector.register(connection, selectors.EVENT_READ, child)
        return None

    @staticmethod
    def _child_for(start: Start, connection: socket.socket) -> int | None:
        """As `os.fork` gives it; None if there is none. Who asked and no longer waits has become Python itself."""
        suiting = suits(start.environment, os.environ)
        try:
            connection.sendall(ACCEPTED if suiting else REFUSED)
            return os.fork() if suiting else None
        except OSError:
            return None

    def _tell_of_ends(self) -> None:
        while self._asked:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            connection = self._asked.pop(child, None)
            if connection is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError):
                connection.sendall(bytes([code if code >= 0 else 128 - code]))
            with contextlib.suppress(KeyError):
                self._selector.unregister(connection)
            connection.close()

    def _left(self, child: int) -> None:
        """Who asked was ended: so is the child, and the rest when it is."""
        self._selector.unregister(self._asked[child])
        os.kill(child, signal.SIGTERM)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for end in (self._listener, self._woken, self._wakes, *self._asked.values()):
            end.close()


def receive(connection: socket.socket) -> Start:
    """OSError, ValueError: this is not how one asks."""
    head, files, _flags, _address = socket.recv_fds(connection, LENGTH.size, _STANDARD_FILES)
    try:
        (size,) = LENGTH.unpack(head)
        if len(files) != _STANDARD_FILES or size > _MESSAGE_BYTES_MAX:
            raise ValueError(f"{len(files)} files and {size} bytes")
        told: dict[str, Any] = json.loads(_exactly(connection, size))
        return Start(told["module"], told["arguments"], told["environment"], told["directory"], files)
    except (struct.error, KeyError, TypeError) as error:
        _close_all(files)
        raise ValueError(str(error)) from error
    except (OSError, ValueError):
        _close_all(files)
        raise


def _exactly(connection: socket.socket, size: int) -> bytes:
    message = bytearray()
    while len(message) < size:
        part = connection.recv(size - len(message))
        if not part:
            raise ConnectionError("ended early")
        message += part
    return bytes(message)


def _close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)


def suits(asked: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether a Python started with what is asked would be like this one: much is read only as it starts."""
    return _read_early(asked) == _read_early(own) and all(
        asked.get(key) in {None, "", *indifferent, own.get(key)} for key, indifferent in _READ_ONCE.items()
    )


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """By Python or any library; except for what has rules of its own."""
    return {
        key: value
        for key, value in environment.items()
        if value and key not in _FOLLOWED and key not in _READ_ONCE and not _READ_LATE.fullmatch(key)
    }


def become(start: Start, path: list[str]) -> None:
    """Goes on as `python -m module arguments...` would. `path` is where modules are looked for in any case."""
    for number, file in enumerate(start.files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(start.directory)
    os.environ.clear()
    os.environ.update(start.environment)
    sys.path[:] = [*_put_first(start.environment, start.directory), *path]
    sys.argv[:] = [start.module, *start.arguments]
    if start.environment.get("PYTHONUNBUFFERED"):
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    sys.modules.pop(start.module, None)  # it is loaded anew, as __main__
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)


def _put_first(environment: Mapping[str, str], directory: str) -> list[str]:
    """Where Python looks for modules before it looks where they are installed."""
    named = [str(Path(directory, entry)) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return list(dict.fromkeys(named if sys.flags.safe_path else [directory, *named]))


def main() -> None:
    number, place = sys.argv[1:]
    put_first = _put_first(os.environ, str(Path.cwd()))
    path = [entry for entry in sys.path if entry not in put_first]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark's Java has it, and so whatever that starts
    preload(PLANNERS)
    gc.collect()
    gc.freeze()  # the collector of a child would touch, and so copy, all that it shares with the others
    nursery = Nursery(socket.socket(fileno=int(number)))
    start = nursery.serve()
    if start is None:
        remove(Path(place))
        return
    del nursery
    become(start, path)


if __name__ == "__main__":
    main()
