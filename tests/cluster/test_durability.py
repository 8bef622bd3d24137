"""What each setting promises, and what it does not: the table in docs/cluster.md, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import LATEST, batch_of, produce, try_list_offset, try_produce, values_in

from tidelog.errors import ErrorCode
from tidelog.testing import eventually

if TYPE_CHECKING:
    from cluster_fixtures import StartCluster

    from tidelog.testing.cluster import ClusterProcesses

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.timeout(1800)

TOPIC = "durable"
NOT_NOW = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
MOVED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def write(cluster: ClusterProcesses, value: bytes, *, acks: int = -1) -> int:
    """One record to whoever leads; gives the error code."""

    def answered() -> int | None:
        with cluster.connect(cluster.leader(TOPIC)) as client:
            code = try_produce(client, TOPIC, batch_of([value]), acks=acks).error_code
        return None if code in MOVED else code

    return eventually(answered, "the leader to answer", within_s=60)


def stored(cluster: ClusterProcesses) -> list[bytes | None]:
    with cluster.connect(cluster.leader(TOPIC)) as client:

        def knows_its_end() -> bool:
            # A new leader does not, until its followers have told it what they have.
            return try_list_offset(client, TOPIC, LATEST).error_code != ErrorCode.OFFSET_NOT_AVAILABLE

        eventually(knows_its_end, "the leader to know where the partition ends", within_s=60)
        return values_in(client, TOPIC)


def wait_until_only(cluster: ClusterProcesses, in_sync: set[int]) -> None:
    eventually(lambda: cluster.view().of(TOPIC)[0].in_sync == in_sync, f"only {in_sync} to be in sync", within_s=60)


def test_five_replicas_three_in_sync_survive_two_failures_and_refuse_after_the_third(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(5)
    cluster.create_topic(TOPIC, 1, 5, {"min.insync.replicas": "3"})
    accepted = []
    for failures in range(3):
        for number in range(20):
            value = b"%d after %d failures" % (number, failures)
            assert write(cluster, value) == ErrorCode.NONE
            accepted.append(value)
        cluster.kill(cluster.leader(TOPIC))
    assert stored(cluster) == accepted
    wait_until_only(cluster, set(cluster.awake))
    assert write(cluster, b"too much") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert stored(cluster) == accepted, "what is safe can still be read"
    cluster.start()
    cluster.wait_until_in_sync(TOPIC)
    assert write(cluster, b"healed") == ErrorCode.NONE
    assert stored(cluster) == [*accepted, b"healed"]
    cluster.wait_until_identical(TOPIC)


def test_three_replicas_three_in_sync_refuse_after_one_failure(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic(TOPIC, 1, 3, {"min.insync.replicas": "3"})
    assert write(cluster, b"safe") == ErrorCode.NONE
    (follower, *_) = set(cluster.numbers) - {cluster.leader(TOPIC)}
    cluster.kill(follower)
    # Until the follower is known to be gone a write is taken and waits; it was never promised.
    waiting = write(cluster, b"refused, perhaps after it was appended")
    assert waiting in NOT_NOW
    wait_until_only(cluster, set(cluster.awake))
    assert write(cluster, b"refused") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert write(cluster, b"asks less", acks=1) == ErrorCode.NONE
    cluster.restart(follower)
    cluster.wait_until_in_sync(TOPIC)
    assert write(cluster, b"safe again") == ErrorCode.NONE
    found = stored(cluster)
    assert b"refused" not in found
    assert [value for value in found if value != b"refused, perhaps after it was appended"] == [
        b"safe",
        b"asks less",
        b"safe again",
    ]
    cluster.wait_until_identical(TOPIC)


def test_acks_1_loses_what_a_dead_leader_alone_had_and_nothing_else(start_cluster: StartCluster) -> None:
    # Followers that hang stay in sync, by these, for as long as the test needs.
    cluster = start_cluster(settings={"replica.lag.time.max.ms": "60000", "zookeeper.session.timeout.ms": "20000"})
    cluster.create_topic(TOPIC, 1, 3)
    leader = cluster.leader(TOPIC)
    safe = [b"copied %d" % number for number in range(50)]
    with cluster.connect(leader) as client:
        for value in safe[:-1]:
            produce(client, TOPIC, batch_of([value]), acks=1)
        produce(client, TOPIC, batch_of([safe[-1]]), acks=-1)
        followers = [number for number in cluster.numbers if number != leader]
        for follower in followers:
            cluster.pause(follower)
        alone = [b"alone %d" % number for number in range(20)]
        for value in alone:
            produce(client, TOPIC, batch_of([value]), acks=1)
    cluster.kill(leader)
    for follower in followers:
        cluster.resume(follower)
    eventually(lambda: cluster.leader(TOPIC) != leader, "a new leader", within_s=60)
    assert write(cluster, b"after") == ErrorCode.NONE
    found = stored(cluster)
    assert found[: len(safe)] == safe
    assert found[-1] == b"after"
    # What was on its way when the followers hung may have arrived. It is all there is, in order.
    arrived = found[len(safe) : -1]
    assert len(arrived) < len(alone)
    assert arrived == alone[: len(arrived)]
    # Nor does the old leader bring the others back.
    cluster.restart(leader)
    cluster.wait_until_in_sync(TOPIC)
    assert stored(cluster) == found
    cluster.wait_until_identical(TOPIC)


@pytest.mark.parametrize("unclean", [False, True])
def test_when_only_a_replica_that_missed_records_is_left(start_cluster: StartCluster, unclean: bool) -> None:
    """By default the partition waits for one that has them all; where the topic says so, it goes on without them."""
    cluster = start_cluster()
    settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": str(unclean).lower()}
    cluster.create_topic(TOPIC, 1, 3, settings)
    assert write(cluster, b"on all") == ErrorCode.NONE
    leader = cluster.leader(TOPIC)
    (behind, other) = (number for number in cluster.numbers if number != leader)
    cluster.kill(behind)
    cluster.kill(other)
    wait_until_only(cluster, {leader})
    assert write(cluster, b"on one") == ErrorCode.NONE
    cluster.kill(leader)
    cluster.restart(behind)
    if unclean:
        assert stored(cluster) == [b"on all"]
        cluster.start()
    else:
        eventually(lambda: cluster.view().controller == behind, "the one that is left to control", within_s=60)
        assert cluster.view().of(TOPIC)[0].leader == -1
        cluster.start()
        assert stored(cluster) == [b"on all", b"on one"]
    cluster.wait_until_identical(TOPIC)
