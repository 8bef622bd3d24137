"""Exactly once on a cluster: whoever of the brokers dies, at whichever step of a transaction.

Each role dies at those steps at which most depends on it, and each step has somebody who dies; `make test-transactions`
has each role die at every step. (`test_crash_matrix` always does that, with clients that go from step to step.)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from loops import Pipeline

from tidelog.errors import ErrorCode
from tidelog.testing import eventually
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(1800)

GROUP, TRANSACTION = 0, 1
COUNT = 60
SETTINGS = {"transaction.state.log.num.partitions": "5"}


@pytest.fixture
def cluster(start_cluster: StartCluster) -> ClusterProcesses:
    return start_cluster(settings=SETTINGS)


class Pipelines:
    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster
        self._started: list[Pipeline] = []

    def new(self, partitions: int = 2) -> Pipeline:
        pipeline = Pipeline(self._cluster.bootstrap, f"round-{len(self._started)}", partitions)
        for name in (pipeline.input, pipeline.output):
            self._cluster.create_topic(name, partitions)
        self._started.append(pipeline)
        return pipeline

    def close(self) -> None:
        for pipeline in self._started:
            pipeline.end()


@pytest.fixture
def pipelines(cluster: ClusterProcesses) -> Iterator[Pipelines]:
    pipelines = Pipelines(cluster)
    yield pipelines
    pipelines.close()


def coordinator_of(cluster: ClusterProcesses, key: str, kind: int) -> int:
    def ask() -> int | None:
        request = FindCoordinatorRequest(key=key, key_type=kind)
        with cluster.connect(cluster.awake[0]) as client:
            reply = client.call(request, 3, FindCoordinatorResponse)
        return reply.node_id if reply.error_code == ErrorCode.NONE and reply.node_id in cluster.awake else None

    return eventually(ask, f"a coordinator of {key}", within_s=60)


def the_transaction_coordinator(cluster: ClusterProcesses, _pipeline: Pipeline) -> int:
    return coordinator_of(cluster, "worker", TRANSACTION)


def the_group_coordinator(cluster: ClusterProcesses, pipeline: Pipeline) -> int:
    return coordinator_of(cluster, pipeline.group, GROUP)


def a_leader_of_the_output(cluster: ClusterProcesses, pipeline: Pipeline) -> int:
    return cluster.leader(pipeline.output, 0)


STEPS = ("begun", "produced", "offset", "committing", "committed")
DEATHS: dict[Callable[[ClusterProcesses, Pipeline], int], tuple[str, ...]] = {
    the_transaction_coordinator: ("produced", "committing"),
    the_group_coordinator: ("offset", "committing"),
    a_leader_of_the_output: ("begun", "committed"),
}


@pytest.mark.parametrize("role", DEATHS, ids=lambda role: role.__name__)
def test_a_broker_dies_at_each_step(
    cluster: ClusterProcesses, pipelines: Pipelines, role: Callable[[ClusterProcesses, Pipeline], int]
) -> None:
    for step in STEPS if "TRANSACTION_ROUNDS" in os.environ else DEATHS[role]:
        pipeline = pipelines.new()
        pipeline.send(COUNT)
        # Nobody can wait at this step and be caught in the middle of what follows.
        loop = pipeline.run("worker", *([] if step == "committing" else [f"--pause-at={step}"]))
        loop.wait_for(step)
        victim = role(cluster, pipeline)
        cluster.kill(victim)
        loop.go_on()
        pipeline.wait_until_done()
        loop.close()
        pipeline.check()
        cluster.restart(victim)
        cluster.wait_until_in_sync(pipeline.output, "__consumer_offsets", "__transaction_state")
        assert len(pipeline.check()) >= COUNT


def test_a_client_and_its_coordinator_die_together(cluster: ClusterProcesses, pipelines: Pipelines) -> None:
    for step in ("produced", "offset", "committing"):
        pipeline = pipelines.new()
        pipeline.send(COUNT)
        victim = pipeline.run("worker", *([] if step == "committing" else [f"--pause-at={step}"]))
        victim.wait_for(step)
        broker = the_transaction_coordinator(cluster, pipeline)
        cluster.kill(broker)
        victim.kill()
        successor = pipeline.run("worker")
        pipeline.wait_until_done()
        successor.close()
        pipeline.check()
        cluster.restart(broker)
        cluster.wait_until_in_sync(pipeline.output, "__consumer_offsets", "__transaction_state")


def test_a_zombie_is_fenced_on_a_cluster_too(cluster: ClusterProcesses, pipelines: Pipelines) -> None:
    pipeline = pipelines.new(partitions=3)
    pipeline.send(COUNT)
    zombie = pipeline.run("worker", "--pause-at=offset")
    zombie.wait_for("offset")
    successor = pipeline.run("worker")
    successor.wait_for("ready")
    cluster.kill(the_transaction_coordinator(cluster, pipeline))
    zombie.go_on()
    zombie.wait_for("failed")
    pipeline.wait_until_done()
    successor.close()
    assert pipeline.aborted(pipeline.check()) >= zombie.values("produced")


def test_loops_go_on_while_brokers_come_and_go(cluster: ClusterProcesses, pipelines: Pipelines, rounds: int) -> None:
    pipeline = pipelines.new(partitions=3)
    pipeline.send(COUNT)
    loops = [pipeline.run(f"worker-{number}", "--batch=3", "--abort-every=7") for number in range(3)]
    for loop in loops:
        loop.wait_for("ready")  # internal topics are made while there are brokers for all their replicas
    for number in range(3 * rounds):
        victim = cluster.numbers[number % 3]
        cluster.kill(victim)
        pipeline.send(COUNT)
        pipeline.wait_until_done()
        cluster.restart(victim)
        cluster.wait_until_in_sync(pipeline.output, "__consumer_offsets", "__transaction_state")
    for loop in loops:
        loop.close()
    pipeline.check()
