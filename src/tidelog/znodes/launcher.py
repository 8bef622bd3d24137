"""Real ZooKeeper servers on this machine, for development clusters and tests.

    with ZooKeeperServers(directory, 3) as servers:
        await open_zookeeper(servers.connect_string, ...)

They are Apache ZooKeeper's own, run by Java from the jars inside the pyspark package. All that is to be known of them
is in their directory: whoever opens it again, in this process or another one, sees the same servers under the same
ports, running or not, with the data they had. Servers are numbered from 1, as ZooKeeper numbers them.

They end with the process that started them, however it ends, unless they are told to outlive it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from types import TracebackType

    from tidelog.clock import Clock

_HOST = "127.0.0.1"
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_PORTS = range(28_000, 32_000)
"""Below those that the kernel gives to outgoing connections, so that a server that is away for a while finds its own
port free when it comes back."""
_STARTS_MAX = 5
_LOOK_EVERY_S = 0.02
_ANSWER_WITHIN_S = 2.0
_STOPPED_WITHIN_S = 10.0
_SESSION_TIMEOUT_MAX_MS = 600_000
_PREALLOCATED_KB = 1024
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_LAUNCHES = ThreadPoolExecutor(1, thread_name_prefix="zookeeper-launch")
"""The kernel ends a server with the thread that started it: this one stays to the end of the process."""
_SYSTEM_CLOCK = SystemClock()

_LOG_SETTINGS = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
"""


class LauncherError(Exception):
    """The servers cannot be started, or do not do what they are told. The message says what to do, or what they say."""


@dataclass(frozen=True, slots=True)
class _Ports:
    client: int
    quorum: int
    election: int


class ZooKeeperServers:
    def __init__(
        self,
        directory: Path,
        count: int | None = None,
        *,
        tick_ms: int = 200,
        heap_mb: int = 256,
        outlive: bool = False,
        ready_within_s: float = 60.0,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        """`count` (1, 3, ...) is needed only the first time. `tick_ms` is the precision with which sessions expire;
        the shortest session is twice as long. With `outlive` the servers stay when whoever started them is gone."""
        if count is not None and (count < 1 or count % 2 == 0):
            raise LauncherError(f"{count} ZooKeeper servers are no ensemble: a majority needs an odd number of them")
        self.directory = directory.absolute()
        self._tick_ms = tick_ms
        self._heap_mb = heap_mb
        self._outlive = outlive
        self._ready_within_s = ready_within_s
        self._clock = clock
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        known = self._known_ports()
        if count is not None and known and len(known) != count:
            raise LauncherError(f"{directory} has {len(known)} ZooKeeper servers, not {count}: use another directory")
        self._count = count or len(known) or 1
        self._ports = known

    @property
    def numbers(self) -> range:
        return range(1, self._count + 1)

    @property
    def connect_string(self) -> str:
        """What `zookeeper.connect` takes. Known once the servers have been started."""
        return ",".join(self.address(number) for number in self.numbers)

    def address(self, number: int) -> str:
        if not self._ports:
            raise LauncherError("the ZooKeeper servers have not been started, so they have no ports yet")
        return f"{_HOST}:{self._ports[number - 1].client}"

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the servers that run, by number."""
        found = ((number, self._pid(number)) for number in self.numbers)
        return {number: pid for number, pid in found if pid is not None}

    def log_file(self, number: int) -> Path:
        return self._home(number) / "server.log"

    def log_tail(self, number: int, lines: int = 20) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log_file(number).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        return ""

    def start(self) -> Self:
        """Starts the servers that do not run, and waits until all of them serve."""
        for _ in range(_STARTS_MAX):
            first_time = not self._ports
            if first_time:
                self._choose_ports()
            for number in self.numbers:
                if self._pid(number) is None:
                    self._launch(number)
            try:
                self._wait_until_serving(list(self.numbers))
            except LauncherError:
                taken = any("Address already in use" in self.log_tail(number, 200) for number in self.numbers)
                self.stop()
                if not (first_time and taken):
                    raise
                self._forget_ports()
            except BaseException:
                self.stop()
                raise
            else:
                return self
        raise LauncherError(f"found no free ports for ZooKeeper in {_STARTS_MAX} attempts")

    def stop(self) -> None:
        """Ends the servers that run. Their data stays."""
        pids = self.pids
        for pid in pids.values():
            # One that is paused can end only when it goes on.
            _signal(pid, signal.SIGTERM)
            _signal(pid, signal.SIGCONT)
        deadline = self._clock.monotonic() + _STOPPED_WITHIN_S
        for number in pids:
            if not self._wait_for_end(number, deadline):
                self.kill(number)
        self._children.clear()

    def kill(self, number: int) -> None:
        """Ends a server at once (SIGKILL). Nothing happens if it does not run."""
        pid = self._pid(number)
        if pid is not None:
            _signal(pid, signal.SIGKILL)
            if not self._wait_for_end(number, self._clock.monotonic() + _STOPPED_WITHIN_S):
                raise LauncherError(f"ZooKeeper server {number} (pid {pid}) does not end, not even by SIGKILL")

    def restart(self, number: int) -> None:
        """Ends a server if it runs, starts it again and waits until it serves: as one of several, that needs a
        majority of them."""
        pid = self._pid(number)
        if pid is not None:
            _signal(pid, signal.SIGTERM)
            _signal(pid, signal.SIGCONT)
            if not self._wait_for_end(number, self._clock.monotonic() + _STOPPED_WITHIN_S):
                self.kill(number)
        self._launch(number)
        self._wait_until_serving([number])

    def serves(self, number: int) -> bool:
        """Whether a server answers requests: it runs and, as one of several, belongs to a majority."""
        return self.role(number) is not None

    def role(self, number: int) -> str | None:
        """leader, follower or standalone; None for a server that does not serve."""
        try:
            with socket.create_connection((_HOST, self._ports[number - 1].client), _ANSWER_WITHIN_S) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return None
        mode = re.search(rb"^Mode: (\w+)", answer, re.MULTILINE)
        return mode[1].decode() if mode else None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _home(self, number: int) -> Path:
        return self.directory / f"server-{number}"

    def _settings_file(self, number: int) -> Path:
        return self._home(number) / "zoo.cfg"

    def _pid_file(self, number: int) -> Path:
        return self._home(number) / "pid"

    @property
    def _ports_file(self) -> Path:
        return self.directory / "ports.json"

    def _known_ports(self) -> list[_Ports]:
        try:
            text = self._ports_file.read_text(encoding="utf-8")
            return [_Ports(**ports) for ports in json.loads(text)]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError) as error:
            raise LauncherError(f"{self._ports_file} cannot be read ({error}): use another directory") from None

    def _choose_ports(self) -> None:
        free = iter(_free_ports(3 * self._count))
        self._ports = [_Ports(next(free), next(free), next(free)) for _ in self.numbers]
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(_LOG_SETTINGS, encoding="utf-8")
        for number in self.numbers:
            data = self._home(number) / "data"
            data.mkdir(parents=True, exist_ok=True)
            (data / "myid").write_text(f"{number}\n", encoding="ascii")
            self._settings_file(number).write_text(self._settings(number), encoding="utf-8")
        # Last: it says that the rest is there.
        self._ports_file.write_text(json.dumps([asdict(ports) for ports in self._ports]), encoding="utf-8")

    def _forget_ports(self) -> None:
        self._ports_file.unlink()
        self._ports = []
        for number in self.numbers:
            self.log_file(number).unlink(missing_ok=True)

    def _settings(self, number: int) -> str:
        settings: dict[str, object] = {
            "dataDir": self._home(number) / "data",
            "clientPortAddress": _HOST,
            "clientPort": self._ports[number - 1].client,
            "tickTime": self._tick_ms,
            # ZooKeeper's own default, twenty ticks, is shorter than brokers' sessions when ticks are short.
            "maxSessionTimeout": _SESSION_TIMEOUT_MAX_MS,
            # In ticks: a machine under load may hold a server up for seconds.
            "initLimit": max(10, 20_000 // self._tick_ms),
            "syncLimit": max(5, 5_000 // self._tick_ms),
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,stat,mntr,cons,wchs,ruok",
            "autopurge.purgeInterval": 1,
        }
        if self._count > 1:
            for other, ports in zip(self.numbers, self._ports, strict=True):
                settings[f"server.{other}"] = f"{_HOST}:{ports.quorum}:{ports.election}"
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _launch(self, number: int) -> None:
        command = [
            find_java(),
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            f"-Dzookeeper.preAllocSize={_PREALLOCATED_KB}",
            "-cp",
            str(find_jars() / "*"),
            _MAIN_CLASS,
            str(self._settings_file(number)),
        ]
        with self.log_file(number).open("ab") as log:
            child = _LAUNCHES.submit(
                subprocess.Popen,
                command,
                cwd=self._home(number),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for whoever started the servers, who then stops them in order.
                start_new_session=True,
                preexec_fn=None if self._outlive else _end_with_parent,
            ).result()
        self._children[number] = child
        self._pid_file(number).write_text(f"{child.pid} {_started_at(child.pid)}\n", encoding="ascii")

    def _pid(self, number: int) -> int | None:
        child = self._children.get(number)
        if child is not None:
            return child.pid if child.poll() is None else None
        try:
            pid, started_at = map(int, self._pid_file(number).read_text(encoding="ascii").split())
        except (OSError, ValueError):
            return None
        # The number may by now belong to another process.
        return pid if _started_at(pid) == started_at else None

    def _wait_for_end(self, number: int, deadline: float) -> bool:
        while self._pid(number) is not None:
            if self._clock.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def _wait_until_serving(self, numbers: list[int]) -> None:
        deadline = self._clock.monotonic() + self._ready_within_s
        for number in numbers:
            while not self.serves(number):
                if self._pid(number) is None:
                    raise LauncherError(f"ZooKeeper server {number} has ended. Its log:\n{self.log_tail(number)}")
                if self._clock.monotonic() >= deadline:
                    raise LauncherError(
                        f"ZooKeeper server {number} does not serve after {self._ready_within_s:g} s. Its log:\n"
                        f"{self.log_tail(number)}"
                    )
                time.sleep(_LOOK_EVERY_S)


def find_java() -> str:
    """The `java` to use: that of JAVA_HOME, else the first one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise LauncherError(f"there is no Java at {java}: correct or unset JAVA_HOME")
        return str(java)
    found = shutil.which("java")
    if found is None:
        raise LauncherError(
            "ZooKeeper needs Java, which is not on the PATH: install it (Debian: apt-get install "
            "openjdk-17-jre-headless) or set JAVA_HOME"
        )
    return found


def find_jars() -> Path:
    """The directory of jars inside pyspark, which is looked for but not imported: that takes a while."""
    spec = find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        jars = Path(place) / "jars"
        if any(jars.glob("zookeeper-[0-9]*.jar")):
            return jars
    raise LauncherError(
        "the ZooKeeper servers come from the jars inside pyspark, which is not installed: "
        f"{sys.executable} -m pip install 'tidelog[spark]'"
    )


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise LauncherError(f"found no {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def _started_at(pid: int) -> int | None:
    """When a process began, in ticks since the machine did. None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program comes before these, in parentheses, and may contain anything.
    state, *fields = stat.rpartition(")")[2].split()
    threads, started_at = int(fields[16]), int(fields[18])
    # Its first thread may have ended while others still hold its ports.
    return None if state in "ZX" and threads <= 1 else started_at


def _end_with_parent() -> None:
    """Runs in the new process, before it becomes Java."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
