"""Which paths a znode can have (ZooKeeper's rules), and how they split. Pure."""

from __future__ import annotations

import re

from tidelog.znodes.errors import BadArguments

ROOT = "/"
PATH_MAX_CHARS = 1024

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str, *, sequential: bool = False) -> None:
    """Raises BadArguments if no node can have this path. A sequential one may end in /: its name is the number."""
    if not path.startswith(ROOT):
        raise BadArguments(f"path {path!r} must start with /")
    if len(path) > PATH_MAX_CHARS:
        raise BadArguments(f"path of {len(path)} characters is longer than {PATH_MAX_CHARS}")
    forbidden = _FORBIDDEN.search(path)
    if forbidden:
        raise BadArguments(f"path {path!r} has the forbidden character {forbidden[0]!r}")
    if path == ROOT and not sequential:
        return
    whole = path + "0" if sequential else path
    for name in whole[1:].split(ROOT):
        if name in ("", ".", ".."):
            raise BadArguments(f"path {path!r} has {'an empty name' if not name else f'the name {name!r}'} in it")


def parent_of(path: str) -> str:
    return path.rpartition(ROOT)[0] or ROOT


def name_of(path: str) -> str:
    return path.rpartition(ROOT)[2]


def child_of(path: str, name: str) -> str:
    return f"/{name}" if path == ROOT else f"{path}/{name}"
