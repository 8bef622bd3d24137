"""`tidelog cluster start` and its kin, as a user runs them: processes that stay when the command is over."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.local_cluster.ports import HOST, scattered_ports
from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

DONE_WITHIN_S = 240


class Command:
    """`tidelog cluster` for one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # What would configure brokers elsewhere must not reach these.
        self.environment = {**os.environ, "TIDELOG_CLUSTER_DIR": str(directory), "KAFKA_BROKER_ID": "99"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DONE_WITHIN_S,
            check=False,
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.run("cluster", *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def fails(self, *arguments: str) -> str:
        done = self.run("cluster", *arguments)
        assert done.returncode == 1, done
        assert done.stderr.count("Traceback") == 0, done.stderr
        return done.stderr

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "--json").stdout)
        return found

    def states(self) -> list[str]:
        return [broker["state"] for broker in self.status()["brokers"]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path / "cluster")
    yield command
    if (command.directory / "cluster.json").exists():
        command("stop")


def test_a_cluster_is_started_broken_mended_and_stopped(cluster: Command) -> None:
    assert "start one with `tidelog cluster start`" in cluster.fails("status")
    port = scattered_ports(1)[0]
    started = cluster("start", "--brokers", "3", "--racks", "a,b", "--set", "num.partitions=7", "--port", str(port))
    for progress in ("ZooKeeper serves on", "broker 1 is ready", "broker 3 is ready", "is the controller"):
        assert progress in started.stderr
    bootstrap = started.stdout.strip()

    found = cluster.status()
    assert found["bootstrap"] == bootstrap
    assert [(broker["id"], broker["rack"], broker["state"]) for broker in found["brokers"]] == [
        (1, "a", "up"),
        (2, "b", "up"),
        (3, "a", "up"),
    ]
    assert sorted(broker["role"] for broker in found["brokers"]) == ["broker", "broker", "controller"]
    assert [server["state"] for server in found["zookeeper_servers"]] == ["up"]
    addresses = [broker["address"] for broker in found["brokers"]]
    assert ",".join(addresses) == bootstrap
    told = cluster("status").stdout
    assert "controller" in told
    assert "zookeeper 1" in told

    described = cluster.run("topic", "create", "orders", "--bootstrap", bootstrap)
    assert described.returncode == 0, described.stderr
    (topic,) = json.loads(cluster.run("topic", "describe", "orders", "--json", "--bootstrap", bootstrap).stdout)
    assert len(topic["partitions"]) == 7
    assert all(len(partition["replicas"]) == 3 for partition in topic["partitions"])

    assert "running already, with 3 of 3 brokers" in cluster.fails("start")
    cluster("kill", "2")
    assert cluster.states() == ["up", "killed", "up"]
    assert "broker 2 does not run" in cluster.fails("kill", "2")
    assert "down: 2 (`tidelog cluster restart 2`)" in cluster.fails("start")
    assert "there is no broker 9: there are 1, 2, 3" in cluster.fails("kill", "9")
    cluster("restart", "2")
    eventually(lambda: cluster.states() == ["up"] * 3, "broker 2 to be a member again", within_s=60)
    assert [broker["address"] for broker in cluster.status()["brokers"]] == addresses
    assert "ready: broker 2 listens on" in cluster("logs", "2", "--lines", "500").stdout
    assert cluster("logs", "zookeeper").stdout.strip()

    stopped = cluster("stop")
    for progress in ("broker 1 is stopped", "broker 2 is stopped", "broker 3 is stopped", "ZooKeeper is stopped"):
        assert progress in stopped.stderr
    assert cluster.states() == ["stopped"] * 3
    cluster("stop")


def test_a_cluster_comes_back_with_what_it_had_and_may_grow(cluster: Command) -> None:
    port = scattered_ports(1)[0]
    bootstrap = cluster("start", "--brokers", "1", "--port", str(port)).stdout.strip()
    assert cluster.run("topic", "create", "orders", "--bootstrap", bootstrap).returncode == 0
    pids = [broker["pid"] for broker in cluster.status()["brokers"]]
    pids += [server["pid"] for server in cluster.status()["zookeeper_servers"]]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: cluster.states() == ["died"], "the broker to be gone")
    assert "ZooKeeper does not run" in cluster.fails("restart", "1")

    again = cluster("start", "--brokers", "2")
    assert "was not stopped" in again.stderr
    first, second = again.stdout.strip().split(",")
    assert first == bootstrap
    topics = cluster.run("topic", "list", "--bootstrap", second).stdout
    assert "orders" in topics
    cluster("stop")
    assert "has 2 brokers, and 1 of them cannot have all its data" in cluster.fails("start", "--brokers", "1")
    assert "cannot be moved to another" in cluster.fails("start", "--zookeeper", "127.0.0.1:1")
    assert "ZooKeeper servers of its own" in cluster.fails("start", "--zookeeper-servers", "3")


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing_behind(cluster: Command) -> None:
    (cluster.directory / "broker-1").mkdir(parents=True)
    (cluster.directory / "broker-1" / "data").touch()
    complaint = cluster.fails("start", "--brokers", "1", "--port", str(scattered_ports(1)[0]))
    assert "broker 1 has ended at start; its log" in complaint
    assert "broker-1/data" in complaint.partition("ends:")[2]
    assert cluster.states() == ["died"]
    assert [server["state"] for server in cluster.status()["zookeeper_servers"]] == ["down"]


def test_a_port_that_somebody_else_has_taken_meanwhile(cluster: Command) -> None:
    bootstrap = cluster("start", "--brokers", "1", "--port", str(scattered_ports(1)[0])).stdout.strip()
    cluster("kill", "1")
    port = int(bootstrap.rpartition(":")[2])
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind((HOST, port))
        thief.listen()
        assert f"port {port} of broker 1 is taken by another process" in cluster.fails("restart", "1")
    cluster("restart", "1")


def test_without_java_the_user_is_told_what_to_do(cluster: Command, tmp_path: Path) -> None:
    cluster.environment |= {"JAVA_HOME": "", "PATH": str(tmp_path)}
    complaint = cluster.fails("start")
    assert "ZooKeeper needs Java" in complaint
    assert "--zookeeper" in complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "broker.id=1"], "broker.id cannot be set for all brokers"),
        (["--set", "min.insync.replicas=x"], "Invalid value 'x' for configuration min.insync.replicas"),
        (["--set", "nonsense"], "--set takes KEY=VALUE"),
        (["--brokers", "0"], "0 is not in the range"),
        (["--racks", "a,,b"], "--racks takes names"),
        (["--zookeeper", "a:1", "--zookeeper-servers", "3"], "exclude each other"),
    ],
)
def test_a_plan_that_cannot_work_starts_nothing(cluster: Command, arguments: list[str], complaint: str) -> None:
    done = cluster.run("cluster", "start", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert not (cluster.directory / "cluster.json").exists()
