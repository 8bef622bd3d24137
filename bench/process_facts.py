"""What the kernel says of a process: processor time, memory."""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_AFTER_NAME = re.compile(r"^\d+ \(.*\) ", re.DOTALL)


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads so far, user and system."""
    fields = _AFTER_NAME.sub("", Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")).split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Resident memory, mapped libraries included, as `ps` shows it."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    match = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert match is not None, "this bench needs Linux's /proc"
    return int(match[1]) * 1024


class Spent:
    """Filled in when the block ends."""

    cpu_s = 0.0
    wall_s = 0.0

    @property
    def share(self) -> float:
        """Of one processor."""
        return self.cpu_s / self.wall_s


@contextmanager
def spent_by(pid: int) -> Iterator[Spent]:
    spent = Spent()
    cpu_before, wall_before = cpu_seconds(pid), time.perf_counter()
    yield spent
    spent.wall_s = time.perf_counter() - wall_before
    spent.cpu_s = cpu_seconds(pid) - cpu_before


def tree_cpu_seconds() -> float:
    """Processor time of this process and of all that it started and they started in turn, ended ones included."""
    spent: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = _AFTER_NAME.sub("", path.read_text(encoding="utf-8")).split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(path.parent.name)
        spent[pid] = sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
        children.setdefault(int(fields[1]), []).append(pid)
    tree = [os.getpid()]
    for pid in tree:
        tree.extend(children.get(pid, ()))
    return sum(spent.get(pid, 0.0) for pid in tree)
