"""`python -IS from_nursery.py SOCKET -m MODULE ARGUMENTS...`: a child of the nursery in place of a Python of its own.

Its parent sees no difference: the child has this process's files, directory and environment, and ends with it. It loads
next to nothing, for it is started in the place of something that is to be quick. See `nursery.py`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

LENGTH = struct.Struct(">I")
ACCEPTED, REFUSED = b"+", b"-"
ANSWERED_WITHIN_S = 20


def ask(place: str, module: str, arguments: list[str]) -> socket.socket | None:
    """The connection over which the child's end is told; None if there will be no child."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        directory = os.getcwd()  # noqa: PTH109 - pathlib takes as long to load as all else
        told = {"module": module, "arguments": arguments, "environment": dict(os.environ), "directory": directory}
        message = json.dumps(told).encode()
        connection.settimeout(ANSWERED_WITHIN_S)
        connection.connect(place)
        socket.send_fds(connection, [LENGTH.pack(len(message))], [0, 1, 2])
        connection.sendall(message)
        if connection.recv(1) == ACCEPTED:
            connection.settimeout(None)
            return connection
    except OSError:
        pass
    connection.close()
    return None


def main() -> None:
    place, *rest = sys.argv[1:]
    connection = ask(place, rest[1], rest[2:]) if rest[:1] == ["-m"] and len(rest) > 1 else None
    if connection is None:
        os.execv(sys.executable, [sys.executable, *rest])  # noqa: S606 - what was asked for, without a shell
    code = connection.recv(1)
    sys.exit(code[0] if code else 1)


if __name__ == "__main__":
    main()
