"""The cluster's tree in ZooKeeper, as clients of ZooKeeper that know nothing of us see it: kazoo, and its own shell."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(600)

SHELL = "org.apache.zookeeper.ZooKeeperMain"
TOPIC = "seen"


@pytest.fixture
def cluster(start_cluster: StartCluster) -> ClusterProcesses:
    cluster = start_cluster(racks=["a", "b", "c"])
    cluster.create_topic(TOPIC, 2, 3, {"retention.ms": "86400000"})
    return cluster


@pytest.fixture
def kazoo(cluster: ClusterProcesses) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


def read(kazoo: KazooClient, path: str) -> Any:
    data, _stat = kazoo.get(path)
    return json.loads(data)


def test_kazoo_reads_brokers_topics_states_and_settings(cluster: ClusterProcesses, kazoo: KazooClient) -> None:
    assert sorted(kazoo.get_children("/brokers/ids")) == ["1", "2", "3"]
    for number, address in cluster.addresses.items():
        broker = read(kazoo, f"/brokers/ids/{number}")
        assert broker["endpoints"] == [f"PLAINTEXT://{address}"]
        assert (broker["host"], broker["port"], broker["rack"]) == (address.host, address.port, " abc"[number])
    assert read(kazoo, "/controller")["brokerid"] == cluster.wait_for_controller()
    assert int(kazoo.get("/controller_epoch")[0]) >= 1

    cluster.wait_until_in_sync(TOPIC)
    assignment = read(kazoo, f"/brokers/topics/{TOPIC}")["partitions"]
    for number, found in cluster.view().of(TOPIC).items():
        assert tuple(assignment[str(number)]) == tuple(found.replicas)
        state = read(kazoo, f"/brokers/topics/{TOPIC}/partitions/{number}/state")
        assert (state["leader"], state["leader_epoch"]) == (found.leader, found.leader_epoch)
        assert set(state["isr"]) == found.in_sync
    assert read(kazoo, f"/config/topics/{TOPIC}")["config"] == {"retention.ms": "86400000"}


def test_kazoo_is_told_when_a_broker_dies_and_another_one_leads(cluster: ClusterProcesses, kazoo: KazooClient) -> None:
    victim = cluster.leader(TOPIC, 0)
    seen: list[tuple[str, bytes | list[str]]] = []
    kazoo.ChildrenWatch("/brokers/ids", lambda children: seen.append(("brokers", sorted(children))))
    kazoo.DataWatch(f"/brokers/topics/{TOPIC}/partitions/0/state", lambda data, _stat: seen.append(("state", data)))
    cluster.kill(victim)
    left = sorted(str(number) for number in cluster.awake)
    eventually(lambda: ("brokers", left) in seen, "the broker to be gone from the tree", within_s=60)
    eventually(
        lambda: any(name == "state" and json.loads(data)["leader"] in cluster.awake for name, data in seen),  # type: ignore[arg-type]
        "another leader in the tree",
        within_s=60,
    )


def test_the_shell_of_zookeeper_reads_the_tree(cluster: ClusterProcesses) -> None:
    servers, root = cluster.zookeeper_connect.split("/", 1)

    def shell(*command: str) -> list[str]:
        spec = find_spec("pyspark")
        java = shutil.which("java")
        assert spec is not None
        assert spec.origin is not None
        assert java is not None
        jars = Path(spec.origin).parent / "jars"
        done = subprocess.run(
            [java, "-cp", f"{jars}/*", SHELL, "-server", servers, *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.splitlines()

    assert "[1, 2, 3]" in shell("ls", f"/{root}/brokers/ids")
    (controller,) = (line for line in shell("get", f"/{root}/controller") if line.startswith("{"))
    assert json.loads(controller)["brokerid"] == cluster.wait_for_controller()
