"""Watches how much memory a broker and the processes it starts take at most."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY_S = 0.05
_OWN_MEMORY = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


def own_bytes(pid: int) -> int:
    """Resident memory that is the process's own, without mapped files; 0 if it is gone."""
    try:
        match = _OWN_MEMORY.search(Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else 0


def children(pid: int) -> list[int]:
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, listing.read_text(encoding="ascii").split())
        except OSError:
            continue
    return found


class MemoryWatch:
    """Looks every few milliseconds, in a thread. `pid` gives None while the broker is away."""

    def __init__(self, pid: Callable[[], int | None]) -> None:
        self.broker_peak = 0
        self.worker_peak = 0
        self.workers_seen: set[int] = set()
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            pid = self._pid()
            if pid is None:
                continue
            self.broker_peak = max(self.broker_peak, own_bytes(pid))
            for worker in children(pid):
                self.workers_seen.add(worker)
                self.worker_peak = max(self.worker_peak, own_bytes(worker))
