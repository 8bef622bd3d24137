"""Consumer groups live on when their coordinator dies: another broker takes over what the first one knew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from members import CONFLUENT, CONFLUENT_CONSUMER, Group, Kind
from streams import Stream, at_least_once, committed_positions, exactly_once, positions_reach

from tidelog.errors import ErrorCode
from tidelog.testing import eventually
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(1800)

TOPIC = "shared"
PARTITIONS = 4
EACH = 10

SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture
def cluster(start_cluster: StartCluster) -> ClusterProcesses:
    cluster = start_cluster(settings=SETTINGS)
    cluster.create_topic(TOPIC, PARTITIONS)
    return cluster


@pytest.fixture
def group(cluster: ClusterProcesses) -> Iterator[Group]:
    group = Group(cluster.bootstrap, "movers", [TOPIC], PARTITIONS)
    yield group
    group.close()


def coordinator_of(cluster: ClusterProcesses, group: str) -> int:
    """The broker that runs and says that it looks after the group."""

    def ask() -> int | None:
        request = FindCoordinatorRequest(key=group, key_type=0)
        with cluster.connect(cluster.awake[0]) as client:
            reply = client.call(request, 3, FindCoordinatorResponse)
        return reply.node_id if reply.error_code == ErrorCode.NONE and reply.node_id in cluster.awake else None

    return eventually(ask, f"a coordinator of {group}", within_s=60)


@pytest.mark.parametrize("kind", [CONFLUENT, CONFLUENT_CONSUMER], ids=str)
@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_group_moves_with_its_coordinator(cluster: ClusterProcesses, group: Group, kind: Kind, ending: str) -> None:
    stream = Stream(cluster.bootstrap)
    for _ in range(2):
        group.join(kind, "--session-ms=30000")
    group.settle()
    exactly_once(group, stream.send(EACH, group.wanted))
    positions_reach(group, stream, cluster.bootstrap)
    before = committed_positions(cluster.bootstrap, group.name, group.wanted)

    victim = coordinator_of(cluster, group.name)
    if ending == "kill":
        cluster.kill(victim)
    else:
        cluster.stop(victim)
    assert coordinator_of(cluster, group.name) != victim
    after = committed_positions(cluster.bootstrap, group.name, group.wanted)
    assert after == before, "positions that were committed are known to the new coordinator"
    at_least_once(group, stream.send(EACH, group.wanted))

    cluster.restart(victim)
    cluster.wait_until_in_sync("__consumer_offsets", TOPIC)
    at_least_once(group, stream.send(EACH, group.wanted))
    positions_reach(group, stream, cluster.bootstrap)
    cluster.wait_until_identical("__consumer_offsets", TOPIC)
