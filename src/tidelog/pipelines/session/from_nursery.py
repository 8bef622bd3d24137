"""`python -IS from_nursery.py NAME -m MODULE ARGUMENTS...`: a child of the nursery in place of a Python of its own.

Its parent sees no difference: the child has this process's files, limits and environment, and ends with it. It loads
next to nothing, for it is started in the place of something that is to be quick. See `nursery.py`.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import struct
import sys

LENGTH = struct.Struct(">I")
ACCEPTED = b"+"
ANSWERED_WITHIN_S = 3
"""Spark gives some of its Python programs ten seconds to report, in which a Python may have to be started yet."""

_PEER = struct.Struct("3i")


def address(name: str) -> str:
    """In no file system, so that nothing is left of it whatever happens."""
    return f"\0{name}"


def is_of_same_user(connection: socket.socket) -> bool:
    """Such addresses are open to everybody."""
    _process, user, _group = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(user == os.getuid())


def ask(name: str, module: str, arguments: list[str]) -> tuple[socket.socket, int] | None:
    """The connection over which the child's end is told, and a handle of the child; None if there will be none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        told = {
            "module": module,
            "arguments": arguments,
            "environment": dict(os.environ),
            "directory": os.getcwd(),  # noqa: PTH109 - pathlib takes as long to load as all else
            "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits()},
        }
        message = json.dumps(told).encode()
        connection.settimeout(ANSWERED_WITHIN_S)
        connection.connect(address(name))
        if is_of_same_user(connection):
            socket.send_fds(connection, [LENGTH.pack(len(message))], [0, 1, 2])
            connection.sendall(message)
            child = _answer(connection)
            if child is not None:
                connection.settimeout(None)
                return connection, child
    except OSError:
        pass
    connection.close()
    return None


def limits() -> list[str]:
    return [name for name in dir(resource) if name.startswith("RLIMIT_")]


def _answer(connection: socket.socket) -> int | None:
    """The handle that comes with a yes. A yes sent within the time counts; after it, none can be sent any more."""
    try:
        answer, files, _flags, _address = socket.recv_fds(connection, 1, 1)
    except TimeoutError:
        connection.shutdown(socket.SHUT_RD)
        answer, files, _flags, _address = socket.recv_fds(connection, 1, 1)
    return files[0] if answer == ACCEPTED and files else None


def end_of(connection: socket.socket, child: int) -> int:
    """Waits for it, and gives the code to end with. A child outlives a nursery that is gone, and so does who asked."""
    try:
        code = connection.recv(1)
    except OSError:
        code = b""
    if code:
        return code[0]
    select.select([child], [], [])
    return 1


def main() -> None:
    name, *rest = sys.argv[1:]
    asked = ask(name, rest[1], rest[2:]) if rest[:1] == ["-m"] and len(rest) > 1 else None
    if asked is None:
        os.execv(sys.executable, [sys.executable, *rest])  # noqa: S606 - what was asked for, without a shell
    sys.exit(end_of(*asked))


if __name__ == "__main__":
    main()
