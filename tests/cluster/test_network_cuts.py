"""Brokers cut off from each other, from ZooKeeper and from everything: nothing that was acknowledged is lost.

Needs root's rights on Linux, for network namespaces; without them these tests fail and say so. `make test-cluster`
runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import batch_of, produce_request
from failures import TOPIC, survive

from tidelog.errors import ErrorCode
from tidelog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster_fixtures import Place
    from cluster_load import Load

    from tidelog.testing.cluster import ClusterProcesses
    from tidelog.testing.cluster_network import ClusterNetwork

pytest_plugins = ["cluster_fixtures"]
pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(7200)]

PROBES = "probes"
GIVES_UP_MS = 8000
REFUSALS = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def a_leader_is_cut_off(cluster: ClusterProcesses, network: ClusterNetwork, load: Load, victim: int) -> None:
    network.cut_off(victim)
    cluster.wait_until_led(TOPIC)
    load.wait_for_acks()


def a_leader_does_not_reach_zookeeper(
    cluster: ClusterProcesses, network: ClusterNetwork, load: Load, victim: int
) -> None:
    """Its session ends, while it still reaches followers and clients, and thinks that it leads.

    A client that asks this broker of all for new leaders stays with it, and gets nothing acknowledged, until it asks
    another one. A broker cannot tell this from ZooKeeper being down altogether, in which case it must go on.
    """
    del load
    network.cut_from_zookeeper(victim)
    cluster.wait_until_led(TOPIC)


def a_leader_does_not_reach_its_followers(
    cluster: ClusterProcesses, network: ClusterNetwork, load: Load, victim: int
) -> None:
    """It promises nothing that it alone has."""
    del load
    (probe,) = cluster.view(victim).led_by(victim, PROBES)[:1] or (None,)
    for other in cluster.awake:
        network.cut(victim, other)
    if probe is not None:
        assert write(cluster, victim, probe) in REFUSALS


def two_brokers_do_not_reach_each_other(
    cluster: ClusterProcesses, network: ClusterNetwork, load: Load, victim: int
) -> None:
    """Where the third can tell the controller, writes go on without the one that is out of reach; else they wait."""
    del load
    (probe,) = cluster.view(victim).led_by(victim, PROBES)[:1] or (None,)
    network.cut(victim, cluster.awake[0])
    if probe is not None:
        assert write(cluster, victim, probe) in {ErrorCode.NONE, *REFUSALS}


def write(cluster: ClusterProcesses, leader: int, partition: int) -> int:
    """One record that all in-sync replicas are to have; gives what the leader says when it knows, or gives up."""
    request = produce_request(PROBES, batch_of([b"probe"]), partition)
    request.timeout_ms = GIVES_UP_MS
    with cluster.connect(leader, timeout_s=60) as client:
        (answers,) = client.call(request, 9, ProduceResponse).responses
    (answer,) = answers.partition_responses
    return answer.error_code


CUTS = [
    a_leader_is_cut_off,
    a_leader_does_not_reach_zookeeper,
    a_leader_does_not_reach_its_followers,
    two_brokers_do_not_reach_each_other,
]


@pytest.mark.parametrize("whom", ["leader", "controller"])
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__)
def test_what_was_acknowledged_survives_when(
    place: Place,
    rounds: int,
    capsys: pytest.CaptureFixture[str],
    cut: Callable[[ClusterProcesses, ClusterNetwork, Load, int], None],
    whom: str,
) -> None:
    cluster, network = place

    def happens(cluster: ClusterProcesses, load: Load, number: int) -> None:
        victim = cluster.leader(TOPIC, number % 4) if whom == "leader" else cluster.wait_for_controller()
        cluster.apart.add(victim)
        cut(cluster, network, load, victim)
        network.mend()
        cluster.apart.discard(victim)

    cluster.create_topic(PROBES, 6)
    happens.__name__ = f"{cut.__name__} ({whom})"
    survive(cluster, happens, rounds, capsys)
    cluster.wait_until_identical(PROBES)
