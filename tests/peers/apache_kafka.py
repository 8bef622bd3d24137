"""Apache Kafka itself: one KRaft node for tests and benches to compare with, and its command-line tools.

`KafkaProcess` has the same face as Tidelog's own `BrokerProcess`, so that a suite can run against either.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from peer_setup import kafka_broker, tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CLUSTER_ID = "dGlkZWxvZy1wZWVyLW5vZA"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
TOOL_TIMEOUT_S = 120.0
START_ATTEMPTS = 3

# A short-lived JVM spends most of its life starting: the second compiler and parallel collectors only cost.
QUICK_START_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class KafkaNotReadyError(RuntimeError):
    """The node ended, or did not answer in time; the message carries the end of its log."""


class KafkaProcess:
    """One Apache Kafka node, broker and controller in one, on 127.0.0.1. Data and ports survive `stop` and `kill`."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str],
        *,
        heap: str = "512m",
        listeners: Mapping[str, str] = {},
    ) -> None:
        """`listeners` come beside the plain one: by name, the protocol of each, such as SASL_SSL."""
        self.data_dir = data_dir
        self._listeners = dict(listeners)
        self._settings = dict(settings)
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tuple[int, ...] | None = None
        """Of the broker, of the controller, and of the other listeners."""

    @property
    def bootstrap(self) -> str:
        assert self._ports is not None, "the node has not been started"
        return f"127.0.0.1:{self._ports[0]}"

    def bootstrap_of(self, listener: str) -> str:
        assert self._ports is not None, "the node has not been started"
        return f"127.0.0.1:{self._ports[2 + list(self._listeners).index(listener)]}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node has not been started"
        return self._process.pid

    @property
    def log_path(self) -> Path:
        return self.data_dir / "kafka.out"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> Self:
        """Returns once the node takes part in its cluster. Ports are chosen freely, so a lost race is tried again."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, START_ATTEMPTS + 1):
            if self._ports is None:
                self._ports = tuple(_free_ports(2 + len(self._listeners)))
            self._configure(*self._ports)
            self._launch()
            try:
                self._wait_ready()
            except KafkaNotReadyError:
                self.kill()
                if attempt == START_ATTEMPTS or b"BindException" not in self.log_path.read_bytes():
                    raise
                self._ports = None
            else:
                break
        return self

    def stop(self) -> int:
        """Asks the node to shut down cleanly and gives its exit code; a node that does not end in time is killed."""
        assert self._process is not None, "the node has not been started"
        self._process.terminate()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code

    def kill(self) -> None:
        assert self._process is not None, "the node has not been started"
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stops the node if it runs."""
        if self._process is not None:
            self.stop()

    def _configure(self, port: int, controller_port: int, *other_ports: int) -> None:
        named = {"PLAINTEXT": port, **dict(zip(self._listeners, other_ports, strict=True))}
        advertised = ",".join(f"{name}://127.0.0.1:{number}" for name, number in named.items())
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir / "logs"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.data_dir / "server.properties").write_text(lines)

    def _launch(self) -> None:
        properties = str(self.data_dir / "server.properties")
        format_storage = ("format", "--ignore-formatted", "--cluster-id", CLUSTER_ID, "--config", properties)
        run_tool("kafka.tools.StorageTool", format_storage)
        flags = (f"-Xmx{self._heap}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                java_command("kafka.Kafka", (properties,), flags),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )

    def _wait_ready(self) -> None:
        """A node lists itself as a broker only once the controller has let it in."""
        assert self._process is not None
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if client.list_topics(timeout=1.0).brokers:
                    return
            except KafkaException:
                continue
        raise KafkaNotReadyError(f"Apache Kafka did not start:\n{self.log_path.read_text()[-4000:]}")


def java_command(main_class: str, arguments: Sequence[str], flags: Sequence[str] = QUICK_START_FLAGS) -> list[str]:
    """The command that runs a class out of Apache Kafka's jars."""
    return [tool("java"), *flags, "-cp", f"{kafka_broker()}/lib/*", main_class, *arguments]


def run_tool(main_class: str, arguments: Sequence[str]) -> str:
    """Runs one of Kafka's tools to its end and returns what it printed."""
    done = subprocess.run(
        java_command(main_class, arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        env=_environment(),
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{main_class} failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _environment() -> dict[str, str]:
    # Options meant for somebody's other Java programs would be printed into our output.
    return {key: value for key, value in os.environ.items() if key not in {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"}}


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [server.getsockname()[1] for server in held]
    finally:
        for server in held:
            server.close()
