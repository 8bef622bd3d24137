"""A real standalone Spark cluster on this machine: a master and its workers, each a process of its own.

with SparkCluster(tmp_path / "spark", workers=2) as spark:
    session = build_session(spark.master, conf=spark.conf)
    os.kill(spark.executors()[0], signal.SIGKILL)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tidelog.local_cluster.ports import HOST, scattered_ports
from tidelog.pipelines.session.java import find_java, shim
from tidelog.pipelines.session.places import cache_directory, spark_home
from tidelog.pipelines.session.python import python_shim
from tidelog.pipelines.session.settings import SHORT_RUN
from tidelog.testing.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_READY_WITHIN_S: Final = 240.0
_ENDED_WITHIN_S: Final = 60.0
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    def __init__(self, directory: Path, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> None:
        self._directory = directory
        self._workers_wanted = workers
        self._cores = cores
        self._memory = memory
        self._port, self._web_port, *self._worker_web_ports = scattered_ports(2 + workers)
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    @property
    def conf(self) -> Mapping[str, str]:
        """What a driver on this machine has to set, too."""
        python = python_shim(sys.executable, cache_directory(os.environ), spark_home())
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(SHORT_RUN),
            "spark.pyspark.python": python,
            "spark.pyspark.driver.python": python,
            "spark.python.daemon.module": "tidelog.pipelines.session.worker_daemon",
            "spark.ui.enabled": "false",
        }

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            return self._start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> Self:
        web = ("--webui-port", str(self._web_port))
        self._master = self._launch("master", "master.Master", "--host", HOST, "--port", str(self._port), *web)
        eventually(lambda: self.status() is not None, "Spark's master to answer", within_s=_READY_WITHIN_S)
        size = ("--cores", str(self._cores), "--memory", self._memory, "--host", HOST)
        for number, web_port in enumerate(self._worker_web_ports, start=1):
            work = ("--work-dir", str(self._directory / f"work-{number}"), "--webui-port", str(web_port))
            self._workers.append(self._launch(f"worker-{number}", "worker.Worker", *size, *work, self.master))
        eventually(lambda: self.alive_workers() == self._workers_wanted, "Spark's workers", within_s=_READY_WITHIN_S)
        return self

    def close(self) -> None:
        processes = [*self._workers, *([] if self._master is None else [self._master])]
        self._workers, self._master = [], None
        for process in processes:
            _kill_all(process)
        for process in processes:
            process.wait(_ENDED_WITHIN_S)

    def status(self) -> dict[str, Any] | None:
        """What the master tells of itself; None while it does not answer, or only with its first page."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=10) as answer:
                told: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            assert self._master is None or self._master.poll() is None, self.log("master")
            return None
        return told

    def alive_workers(self) -> int:
        status = self.status()
        return 0 if status is None else int(status["aliveworkers"])

    def executors(self) -> list[int]:
        """The numbers of the processes in which tasks run."""
        workers = {process.pid for process in self._workers}
        return [pid for pid in _processes() if _parent(pid) in workers and _EXECUTOR in _command_line(pid)]

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def _launch(self, name: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "JAVA_HOME": str(shim(find_java(os.environ), cache_directory(os.environ))),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": " ".join([*SHORT_RUN, "-Dspark.master.rest.enabled=false"]),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
        }
        with ExitStack() as opened:
            log = opened.enter_context((self._directory / f"{name}.log").open("wb"))
            return subprocess.Popen(  # noqa: S603 - Spark's own start script
                [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """With everything that it has started: a worker's executors are in its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def _parent(pid: int) -> int | None:
    try:
        # The name in the second field may hold anything; the parent is the second field after it.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return None  # it has ended


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
