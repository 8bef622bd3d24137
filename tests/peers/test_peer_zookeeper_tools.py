"""The tools of an Apache Kafka that knew ZooKeeper find their way in our tree: they read it, and what they write
there is done."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from apache_kafka import QUICK_START_FLAGS
from peer_setup import kafka_of_zookeeper, tool

from tidelog.testing import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

TOOL_TIMEOUT_S = 120


@pytest.fixture
def cluster(start_cluster: StartCluster) -> ClusterProcesses:
    return start_cluster()


def run(cluster: ClusterProcesses, command: str, *arguments: str) -> str:
    """What `kafka.admin.<command> --zookeeper ...` prints."""
    done = subprocess.run(
        [
            *(tool("java"), *QUICK_START_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("-cp", f"{kafka_of_zookeeper() / 'lib'}/*", f"kafka.admin.{command}"),
            *("--zookeeper", cluster.zookeeper_connect, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_topics_are_listed_described_and_deleted(cluster: ClusterProcesses) -> None:
    cluster.create_topic("ours", 3, 3, {"retention.ms": "86400000"})
    assert run(cluster, "TopicCommand", "--list").split() == ["ours"]
    described = run(cluster, "TopicCommand", "--describe", "--topic", "ours")
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 3" in described
    assert "retention.ms=86400000" in described
    for number, found in cluster.view().of("ours").items():
        replicas = ",".join(map(str, found.replicas))
        assert f"Partition: {number}\tLeader: {found.leader}\tReplicas: {replicas}\tIsr: " in described

    cluster.create_topic("theirs", 2, 3)
    run(cluster, "TopicCommand", "--delete", "--topic", "theirs")
    eventually(lambda: not cluster.view().of("theirs"), "the topic to be gone", within_s=60)
    assert run(cluster, "TopicCommand", "--list").split() == ["ours"]


def test_settings_are_read_and_written(cluster: ClusterProcesses) -> None:
    cluster.create_topic("tuned", 1, 3)
    entity = ("--entity-type", "topics", "--entity-name", "tuned")
    run(cluster, "ConfigCommand", "--alter", *entity, "--add-config", "max.message.bytes=4321")
    assert "max.message.bytes=4321" in run(cluster, "ConfigCommand", "--describe", *entity)
    assert "Configs: max.message.bytes=4321" in run(cluster, "TopicCommand", "--describe", "--topic", "tuned")


def test_replicas_are_moved(cluster: ClusterProcesses, tmp_path: Path) -> None:
    cluster.create_topic("moved", 1, 2)
    (found,) = cluster.view().of("moved").values()
    target = [each for each in cluster.numbers if each not in found.replicas] + [found.replicas[0]]
    plan = tmp_path / "plan.json"
    entry = {"topic": "moved", "partition": 0, "replicas": target, "log_dirs": ["any", "any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    files = ("--reassignment-json-file", str(plan))
    run(cluster, "ReassignPartitionsCommand", *files, "--execute")
    eventually(
        lambda: list(cluster.view().of("moved")[0].replicas) == target,
        "the replicas to be where they belong",
        within_s=60,
    )
    eventually(
        lambda: "is complete" in run(cluster, "ReassignPartitionsCommand", *files, "--verify", "--preserve-throttles"),
        "the tool to see that",
        within_s=60,
    )


def test_preferred_leaders_are_elected(cluster: ClusterProcesses) -> None:
    cluster.create_topic("led", 3, 3)
    victim = cluster.leader("led", 0)
    cluster.restart(victim)
    cluster.wait_until_in_sync("led")
    run(cluster, "PreferredReplicaLeaderElectionCommand")
    eventually(
        lambda: all(found.leader == found.replicas[0] for found in cluster.view().of("led").values()),
        "the first replicas to lead",
        within_s=60,
    )
