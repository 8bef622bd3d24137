"""`zookeeper.connect`: which servers, and below which node of theirs our tree stands. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from tidelog.znodes.errors import BadArguments
from tidelog.znodes.path_rules import ROOT, check_path

_DEFAULT_PORT = 2181


class Ensemble(NamedTuple):
    servers: tuple[str, ...]
    """host:port of each."""
    chroot: str
    """The path of the node that is our root; empty if it is ZooKeeper's own."""


def parse_connect_string(text: str) -> Ensemble:
    """Raises BadArguments."""
    servers, slash, below = text.strip().partition(ROOT)
    chroot = (slash + below).rstrip(ROOT)
    if chroot:
        try:
            check_path(chroot)
        except BadArguments as error:
            raise BadArguments(f"zookeeper.connect={text} ends in a path that no node can have: {error}") from None
    return Ensemble(tuple(_server(part.strip(), text) for part in servers.split(",")), chroot)


def _server(part: str, text: str) -> str:
    try:
        address = urlsplit(f"//{part}")
        host, port = address.hostname, address.port or _DEFAULT_PORT
    except ValueError:
        host, port = None, _DEFAULT_PORT
    if not host or "@" in part:
        raise BadArguments(f"zookeeper.connect={text} must look like host:port,host:port/path, and {part!r} does not")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
