"""What happened in a simulation, line by line: a fingerprint of all of it, and the last lines for people."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LINES_KEPT = 4000


class Trace:
    """Two runs of one seed must give the same lines, so only what the seed decides may be noted."""

    def __init__(self, echo: Callable[[str], None] | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._echo = echo
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.count = 0

    def note(self, now_s: float, who: object, what: str) -> None:
        line = f"{now_s:10.4f} {who}: {what}"
        self._hash.update(line.encode())
        self.count += 1
        self.lines.append(line)
        if self._echo:
            self._echo(line)

    @property
    def fingerprint(self) -> str:
        return self._hash.hexdigest()

    def tail(self, lines: int) -> str:
        return "\n".join(list(self.lines)[-lines:])
