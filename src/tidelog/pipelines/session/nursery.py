"""The process from which all Python of a local Spark is forked, with what it needs loaded once.

Spark starts half a dozen Python programs before a stream's first record is read, each to plan one thing, and each loads
PySpark, Arrow and the source anew, while Java waits. Here they are loaded while Java itself starts. The `python` that
Spark runs then is `from_nursery.py`, which hands its arguments and its files to this process and ends when its child
does; if this process is not there, or was started otherwise than that child would be, it becomes Python itself.

Run by a session as `python -m tidelog.pipelines.session.nursery FD`, the listening socket. It ends when its standard
input, held by the process of the session, is closed. Its children do not.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import re
import resource
import runpy
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipelines.session.from_nursery import ACCEPTED, LENGTH, is_of_same_user
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
_ASKED_WITHIN_S: Final = 1
_MESSAGE_BYTES_MAX: Final = 16 << 20
"""Far more than the arguments and the environment of a process may take."""

_READ_LATE: Final = re.compile(
    r"SPARK_.*|_PYSPARK_DRIVER_.*|PYSPARK_EXECUTOR_MEMORY_MB|PYTHON_(WORKER|DAEMON|UDF|UNIX_DOMAIN|FAULTHANDLER)_.*"
    r"|TIDELOG_(PYTHON_NURSERY|SPARK_APART|SPARK_OUTPUT)|JAVA_HOME|_|PWD|OLDPWD|SHLVL"
)
"""What Spark sets for those that it starts, and nobody looks at before `become` has set it."""

_OF_SPARK: Final = re.compile(r".*/jars/spark-core_[^/]*\.jar")
"""Among the places where modules are looked for. There are none in it."""

_READ_ONCE: Final = {"PYTHONHASHSEED": frozenset({"random"}), "OMP_NUM_THREADS": frozenset[str]()}
"""Set here as workers have them, which is as good for whoever does not ask for something else; and what says that."""

_SWITCH: Final = "PYTHONUNBUFFERED"
_PLACES: Final = "PYTHONPATH"

_PARENT: Final = 0
"""Standard input, of which only the end is of interest."""


class Start(NamedTuple):
    """A program to run as, and with what."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    limits: dict[str, tuple[int, int]]
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
                    start = self._take_in()
                    if start is not None:
                        return start
                elif key.fileobj is self._woken:
                    self._woken.recv(4096)
                    self._tell_of_ends()
                else:
                    self._left(key.data)

    def _take_in(self) -> Start | None:
        """What to do, in the child; None here. Who asks and is not answered becomes Python itself."""
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return None
        try:
            start = receive(connection)
        except (OSError, ValueError):
            connection.close()
            return None
        child = _fork() if suits(start, os.environ, str(Path.cwd())) else None
        if child == 0:
            self._close()
            confirm(connection)
            return start
        _close_all(start.files)
        if child is None:
            connection.close()
        else:
            self._asked[child] = connection
            self._selector.register(connection, selectors.EVENT_READ, child)
        return None

    def _tell_of_ends(self) -> None:
        while self._asked:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            connection = self._asked.pop(child)
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError):
                connection.sendall(bytes([code if code >= 0 else 128 - code]))
            with contextlib.suppress(KeyError):  # who asked may have left
                self._selector.unregister(connection)
            connection.close()

    def _left(self, child: int) -> None:
        """Who asked was ended: so is the child, and the rest when it is."""
        connection = self._asked.get(child)
        if connection is not None:  # else it has ended, too, in the same moment
            self._selector.unregister(connection)
            os.kill(child, signal.SIGTERM)

    def _close(self) -> None:
        """In a child, which has nothing to do with the others, but for the connection of its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for end in (self._listener, self._woken, self._wakes, *self._asked.values()):
            end.close()


def receive(connection: socket.socket) -> Start:
    """OSError, ValueError: this is not how one asks, or not who may."""
    connection.settimeout(_ASKED_WITHIN_S)
    if not is_of_same_user(connection):
        raise PermissionError("another user")
    head, files, _flags, _address = socket.recv_fds(connection, LENGTH.size, _STANDARD_FILES)
    try:
        (size,) = LENGTH.unpack(head)
        if len(files) != _STANDARD_FILES or size > _MESSAGE_BYTES_MAX:
            raise ValueError(f"{len(files)} files and {size} bytes")
        told: dict[str, Any] = json.loads(_exactly(connection, size))
        return Start._make([*(told[name] for name in Start._fields[:-1]), files])
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


def _fork() -> int | None:
    with contextlib.suppress(OSError):
        return os.fork()
    return None


def confirm(connection: socket.socket) -> None:
    """Gives who asked a handle of this process. It ends here if nobody waits for it any longer."""
    try:
        handle = os.pidfd_open(os.getpid())
        socket.send_fds(connection, [ACCEPTED], [handle])
    except OSError:
        os._exit(1)
    os.close(handle)
    connection.close()


def suits(start: Start, own: Mapping[str, str], directory: str) -> bool:
    """Whether a Python started as is asked would be like this one: much is read, and looked for, only as it starts."""
    asked = start.environment
    return (
        start.directory == directory
        and _places(asked) == _places(own)
        and bool(asked.get(_SWITCH)) == bool(own.get(_SWITCH))
        and all(asked.get(key) in {None, "", *same, own.get(key)} for key, same in _READ_ONCE.items())
        and _read_early(asked) == _read_early(own)
    )


def _places(environment: Mapping[str, str]) -> list[str]:
    places = environment.get(_PLACES, "").split(os.pathsep)
    return [place for place in places if place and not _OF_SPARK.fullmatch(place)]


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """By Python or any library; except for what has rules of its own."""
    ruled = {_PLACES, _SWITCH, *_READ_ONCE}
    return {
        key: value for key, value in environment.items() if value and key not in ruled and not _READ_LATE.fullmatch(key)
    }


def become(start: Start) -> None:
    """Goes on as `python -m module arguments...` would."""
    for number, file in enumerate(start.files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(start.environment)
    for name, (soft, hard) in start.limits.items():
        with contextlib.suppress(ValueError, OSError):  # it is as high as it may be
            resource.setrlimit(getattr(resource, name), (soft, hard))
    importlib.invalidate_caches()
    sys.argv[:] = [start.module, *start.arguments]
    sys.modules.pop(start.module, None)  # it is loaded anew, as __main__
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark's Java has it, and so whatever that starts
    preload(PLANNERS)
    gc.collect()
    gc.freeze()  # the collector of a child would touch, and so copy, all that it shares with the others
    nursery = Nursery(socket.socket(fileno=int(sys.argv[1])))
    start = nursery.serve()
    del nursery
    if start is not None:
        become(start)


if __name__ == "__main__":
    main()
