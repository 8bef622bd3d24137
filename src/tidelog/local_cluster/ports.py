"""Ports for servers on this machine.

They lie below those that the kernel gives to outgoing connections: a server that is away for a while finds its own
free when it comes back, and a client that knocks meanwhile is not connected to itself.
"""

from __future__ import annotations

import os
import random
import socket
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.local_cluster.errors import LocalClusterError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

HOST = "127.0.0.1"
FIRST_PORT = 9092
"""Where clients look when they are not told otherwise."""

_PORTS_END = 32_000
_SCATTERED = range(10_000, 28_000)
"""Behind these are those of ZooKeeper's servers."""
_SHARES = 16


def next_ports(count: int, *, start: int = FIRST_PORT, beside: Container[int] = ()) -> list[int]:
    """The first free ports from `start` on, without those `beside`."""
    return _free(count, (port for port in range(start, _PORTS_END) if port not in beside))


def scattered_ports(count: int) -> list[int]:
    """Free ports anywhere: for those who choose at the same time as others and must not choose the same."""
    among = share_of(os.environ.get("PYTEST_XDIST_WORKER"))
    return _free(count, random.sample(among, len(among)))


def share_of(worker: str | None) -> range:
    """The ports to choose among. Tests that run side by side have each their own: a port whose server is away for a
    moment seems to be free."""
    if worker is None or not worker.removeprefix("gw").isdecimal():
        return _SCATTERED
    return _SCATTERED[int(worker.removeprefix("gw")) % _SHARES :: _SHARES]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: what is left of earlier connections is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free(count: int, candidates: Iterable[int]) -> list[int]:
    found = list(islice((port for port in candidates if is_free(port)), count))
    if len(found) < count:
        raise LocalClusterError(f"found no {count} free ports below {_PORTS_END}")
    return found
