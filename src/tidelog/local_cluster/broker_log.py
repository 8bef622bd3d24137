"""What a broker writes to its log: whether it says that it is ready, and its last words."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READY = re.compile(rb"ready: broker \d+ listens on ")
_TAIL_BYTES_MAX = 1 << 20
_LOOK_EVERY_S = 0.1


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def says_ready(path: Path, start: int) -> bool:
    """Whether the broker has said so since its log was `start` bytes long."""
    return _READY.search(_read(path, start)) is not None


def tail(path: Path, lines: int, start: int = 0) -> str:
    """The last lines of those from `start` on, or of as many as a megabyte holds."""
    start = max(start, size(path) - _TAIL_BYTES_MAX)
    return "\n".join(_read(path, start).decode(errors="replace").splitlines()[-lines:])


def follow(path: Path) -> Iterator[str]:
    """What is written from now on, as it comes. Ends never."""
    with path.open(encoding="utf-8", errors="replace") as log:
        log.seek(0, os.SEEK_END)
        while True:
            text = log.read(_TAIL_BYTES_MAX)
            if text:
                yield text
            else:
                time.sleep(_LOOK_EVERY_S)


def _read(path: Path, start: int) -> bytes:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as log:
        log.seek(start)
        return log.read()
    return b""
