"""Processes that outlive whoever started them, and how to know them again.

A process id alone proves nothing once time has passed: the system gives it to somebody else. With the time at which
the process started, and the boot of the machine that time is counted from, it names one process only.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence

    from tidelog.clock import Clock

_LOOK_EVERY_S = 0.02
_ENDED = "ZX"
_PAUSED = "T"


class ProcessMark(NamedTuple):
    """One process of this machine, now and ever."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        state = self._state()
        return state is not None and state not in _ENDED

    @property
    def paused(self) -> bool:
        return self._state() == _PAUSED

    def send(self, number: signal.Signals) -> None:
        """Nothing happens if the process has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait_for_end(self, within_s: float, clock: Clock) -> bool:
        deadline = clock.monotonic() + within_s
        while self.alive:
            if clock.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def _state(self) -> str | None:
        """The letter that Linux has for it; None once another process, or none, has its id."""
        found = _look_up(self.pid)
        if found is None or found[0] != self.started:
            return None
        if found[1] in _ENDED:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)  # a child of ours stays in the table until somebody asks
        return found[1]


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> ProcessMark:
    """Starts a process with a session of its own, so that Ctrl-C and the end of a terminal are not its concern."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    found = _look_up(pid)
    assert found is not None, "a child stays in the table until it is waited for"
    return ProcessMark(pid, found[0])


def _look_up(pid: int) -> tuple[str, str] | None:
    """When a process started, and the letter of its state."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    # The command's name comes second, in parentheses, and may hold anything.
    fields = stat[stat.rindex(")") + 2 :].split()
    return f"{boot}/{fields[19]}", fields[0]
