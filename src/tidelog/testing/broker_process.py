"""A real broker in its own process, for tests that must see what a client sees.

    with BrokerProcess(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

The broker runs as `python -m tidelog broker` and is ready when `start` returns. It picks a free port at its first start
and keeps it: clients reconnect after `kill` and `start` as they would to a machine that came back. Give the settings
`listeners` to decide the ports yourself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, Self

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from tidelog.clock import Clock

READY_LINE = re.compile(r"ready: broker (?P<broker>\d+) listens on (?P<host>\S+):(?P<port>\d+)")

_LOG_LINES_KEPT = 2000
_SYSTEM_CLOCK = SystemClock()


class BrokerProcessError(Exception):
    """The broker did not do what it was told. The message ends with the tail of its log."""


class ReadyAddress(NamedTuple):
    host: str
    port: int


class BrokerProcess:
    """One broker on `data_dir`, started and stopped at will. Its files outlive it, and so does its port."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] = {},
        *,
        ready_within_s: float = 30.0,
        stopped_within_s: float = 30.0,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings)
        self._ready_within_s = ready_within_s
        self._stopped_within_s = stopped_within_s
        self._clock = clock
        self._process: subprocess.Popen[str] | None = None
        self._address: ReadyAddress | None = None
        self._log = _ProcessLog()

    def start(self) -> Self:
        """Start the broker and wait until it says that it is ready."""
        assert not self.running, "the broker is running already"
        self._log = _ProcessLog(self._log.lines())
        self._process = subprocess.Popen(  # noqa: S603 -- our own program with the test's own settings
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            text=True,
            errors="replace",
        )
        assert self._process.stdout is not None
        self._log.follow(self._process.stdout)
        address = self._log.wait_until_ready(self._ready_within_s, self._clock)
        if address is None:
            self._process.kill()
            code = self._process.wait()
            self._log.close()
            raise self._failure(f"the broker was not ready within {self._ready_within_s:g} s (exit code {code})")
        self._address = address
        return self

    def stop(self) -> int:
        """Ask the broker to stop (SIGTERM) and wait for it; gives its exit code, 0 after a clean stop."""
        process = self._running_process()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(self._stopped_within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"the broker did not stop within {self._stopped_within_s:g} s of SIGTERM") from None
        self._log.close()
        return code

    def kill(self) -> None:
        """End the broker at once (SIGKILL): it can write, flush or say nothing any more."""
        process = self._running_process()
        process.kill()
        process.wait()
        self._log.close()

    def restart(self) -> None:
        """A clean stop and a new start on the same port."""
        code = self.stop()
        if code != 0:
            raise self._failure(f"the broker stopped with exit code {code}")
        self.start()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._running_process().pid

    @property
    def port(self) -> int:
        return self._known_address().port

    @property
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`."""
        address = self._known_address()
        return f"{address.host}:{address.port}"

    def resident_bytes(self) -> int:
        """The broker's resident memory that is its own: mapped files are the kernel's to give and take back."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        match = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
        assert match is not None, "this test needs Linux's /proc"
        return int(match[1]) * 1024

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 -- names are enough, and they vanish meanwhile

    def log_lines(self) -> list[str]:
        """What the broker wrote, over all its starts; the oldest of very many lines are gone."""
        return self._log.lines()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_lines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(check=kind is None)

    def close(self, *, check: bool = True) -> None:
        """Stop the broker if it runs; with `check`, a stop that is not clean is an error."""
        if self._process is None:
            return
        if self.running:
            code = self.stop()
            if check and code != 0:
                raise self._failure(f"the broker stopped with exit code {code}")
        self._process = None

    def _command(self) -> list[str]:
        port = self._address.port if self._address else 0
        settings = {
            "broker.id": "0",
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **self.settings,
        }
        command = [sys.executable, "-m", "tidelog", "broker"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def _running_process(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise BrokerProcessError("the broker has not been started")
        code = self._process.poll()
        if code is not None:
            self._log.close()
            raise self._failure(f"the broker has ended with exit code {code}")
        return self._process

    def _known_address(self) -> ReadyAddress:
        if self._address is None:
            raise BrokerProcessError("the broker has not been started, so it has no port yet")
        return self._address

    def _failure(self, what: str) -> BrokerProcessError:
        return BrokerProcessError(f"{what}. Its log ends:\n{self.log_tail()}")


class StartBroker(Protocol):
    def __call__(self, settings: Mapping[str, str] = ..., *, data_dir: Path | None = None) -> BrokerProcess:
        """A started broker with empty directories, or with those given."""


class _ProcessLog:
    """Reads a process's output as it comes, so that the pipe never fills, and notices when it says it is ready."""

    def __init__(self, earlier: Iterable[str] = ()) -> None:
        self._lines: deque[str] = deque(earlier, maxlen=_LOG_LINES_KEPT)
        self._changed = threading.Condition()
        self._address: ReadyAddress | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def follow(self, stream: IO[str]) -> None:
        self._thread = threading.Thread(target=self._read, args=(stream,), name="broker log", daemon=True)
        self._thread.start()

    def wait_until_ready(self, within_s: float, clock: Clock) -> ReadyAddress | None:
        """Where the broker listens, or None when it ended or the time is over."""
        deadline = clock.monotonic() + within_s
        with self._changed:
            while self._address is None and not self._ended:
                if not self._changed.wait(deadline - clock.monotonic()) and clock.monotonic() >= deadline:
                    break
            return self._address

    def lines(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def close(self) -> None:
        """Read to the end of what the ended process wrote."""
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                match = READY_LINE.search(line)
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    if match:
                        self._address = ReadyAddress(match["host"], int(match["port"]))
                        self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _environment() -> dict[str, str]:
    """This process's environment without what would configure the broker behind the test's back."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}
