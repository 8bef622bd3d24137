"""Asking the controller for other in-sync replicas: who leaves, who joins, and what happens without an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cluster_cases import CONTROLLER, Cluster
from replica_cases import ORDERS

from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.wire.declare import Message


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made
        assert not [failure for loop in made.loops for failure in loop.failures]


def isr(cluster: Cluster, place: TopicPartition = ORDERS) -> tuple[int, ...]:
    return cluster.roles[place].isr


def requests(cluster: Cluster) -> list[AlterPartitionRequest]:
    return [each for _from, _to, each in cluster.sent if isinstance(each, AlterPartitionRequest)]


def test_a_follower_that_dies_leaves_and_comes_back_when_it_has_caught_up(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.append(1, b"x")
    cluster.until(lambda: cluster.high_watermarks() == [1, 1, 1])
    cluster.machines[3].kill()
    cluster.append(1, b"y")
    cluster.until(lambda: isr(cluster) == (1, 2), within_s=5)
    cluster.until(lambda: cluster.high_watermarks() == [2, 2])
    cluster.machines[3].start()
    cluster.tell_one(3, cluster.roles[ORDERS])
    cluster.until(lambda: isr(cluster) == (1, 2, 3), within_s=5)
    assert cluster.same()


def test_an_idle_partition_keeps_its_followers_in_sync(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.pass_time(300)
    assert requests(cluster) == []
    cluster.append(1, b"x")
    cluster.until(lambda: cluster.high_watermarks() == [1, 1, 1], within_s=5)
    assert isr(cluster) == (1, 2, 3)


def test_those_out_of_sync_from_the_start_join_in_one_request(cluster: Cluster) -> None:
    cluster.lead(1, isr=(1,))
    cluster.until(lambda: isr(cluster) == (1, 2, 3), within_s=5)
    assert len(requests(cluster)) <= 2


def test_a_busy_leader_can_be_caught_up_with(cluster: Cluster) -> None:
    """There is always something new when a follower asks: it joins all the same, since it is waited for."""
    cluster.lead(1, isr=(1,))
    for _ in range(400):
        cluster.append(1, b"x")
        cluster.pass_time(0.0005)
        if isr(cluster) == (1, 2, 3):
            break
    assert isr(cluster) == (1, 2, 3)


def test_proposals_made_together_go_out_together(cluster: Cluster) -> None:
    places = [TopicPartition("orders", number) for number in range(100)]
    for place in places:
        cluster.lead(1, isr=(1,), place=place)
    cluster.until(lambda: all(isr(cluster, place) == (1, 2, 3) for place in places), within_s=10)
    assert len(requests(cluster)) < 30


def test_without_a_controller_nothing_changes_and_it_is_asked_until_it_answers(cluster: Cluster) -> None:
    cluster.cut.add((1, CONTROLLER))
    cluster.lead(1, isr=(1,))
    cluster.pass_time(20)
    assert cluster.machines[1].node.partition().isr == (1,)
    cluster.cut.clear()
    cluster.until(lambda: isr(cluster) == (1, 2, 3), within_s=5)


def test_an_answer_that_got_lost_is_asked_for_again(cluster: Cluster) -> None:
    cluster.cut.add((CONTROLLER, 1))
    cluster.lead(1, isr=(1,))
    cluster.until(lambda: len(isr(cluster)) > 1)
    cluster.pass_time(3)
    partition = cluster.machines[1].node.partition()
    assert partition.isr == (1,)
    assert partition.proposed_isr == isr(cluster)
    cluster.cut.clear()
    cluster.until(lambda: partition.isr == (1, 2, 3), within_s=5)


def test_one_whom_the_controller_will_not_have_does_not_keep_the_others_out(cluster: Cluster) -> None:
    cluster.refuse_isr = {2}
    cluster.lead(1, isr=(1,))
    cluster.until(lambda: isr(cluster) == (1, 3), within_s=20)
    cluster.refuse_isr.clear()
    cluster.until(lambda: isr(cluster) == (1, 3, 2), within_s=20)


def test_a_follower_of_an_earlier_life_is_not_taken_in(cluster: Cluster) -> None:
    """It may have come back with less than the leader has heard of."""
    cluster.lead(1, isr=(1,))
    cluster.cut.add((1, CONTROLLER))
    cluster.until(lambda: cluster.machines[1].node.partition().proposed_isr is not None)
    cluster.machines[2].kill()
    cluster.machines[2].start()
    cluster.cut.clear()
    cluster.pass_time(3)
    assert 2 not in isr(cluster)
    cluster.tell_one(2, cluster.roles[ORDERS])
    cluster.until(lambda: set(isr(cluster)) == {1, 2, 3}, within_s=20)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_an_error_for_the_whole_request_is_tried_again(cluster: Cluster, code: ErrorCode) -> None:
    left = [3]

    def tamper(_sender: int, message: Message) -> Message:
        if isinstance(message, AlterPartitionResponse) and left[0]:
            left[0] -= 1
            return AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[])
        return message

    cluster.tamper = tamper
    cluster.lead(1, isr=(1,))
    cluster.until(lambda: cluster.machines[1].node.partition().isr == (1, 2, 3), within_s=10)


def test_an_answer_that_leaves_a_partition_out_is_no_answer(cluster: Cluster) -> None:
    left = [2]

    def tamper(_sender: int, message: Message) -> Message:
        if isinstance(message, AlterPartitionResponse) and left[0]:
            left[0] -= 1
            return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=[])
        return message

    cluster.tamper = tamper
    cluster.lead(1, isr=(1,))
    cluster.until(lambda: cluster.machines[1].node.partition().isr == (1, 2, 3), within_s=10)


def test_a_deposed_leader_changes_nothing_and_stops_asking(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.pass_time(1)
    role = cluster.roles[ORDERS] = replace(cluster.roles[ORDERS], leader=2, leader_epoch=1, partition_epoch=1)
    for each in (2, 3):
        cluster.tell_one(each, role)
    cluster.append(1, b"x")
    cluster.pass_time(60)
    assert isr(cluster) == (1, 2, 3) or 1 not in isr(cluster)
    assert cluster.machines[1].node.partition().high_watermark == 0
    cluster.tell_one(1, role)
    cluster.pass_time(3)
    cluster.sent.clear()
    cluster.pass_time(10)
    assert not [each for sender, _to, each in cluster.sent if sender == 1 and isinstance(each, AlterPartitionRequest)]


def test_a_broker_that_was_paused_does_not_blame_its_followers(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.lead(1)
    cluster.append(1, b"x")
    cluster.until(lambda: cluster.high_watermarks() == [1, 1, 1])
    leader = cluster.machines[1]
    leader.node.append(b"y", all_replicas=False)
    leader.loop.freeze()
    cluster.pass_time(60)
    leader.loop.thaw()
    cluster.until(lambda: cluster.high_watermarks() == [2, 2, 2], within_s=10)
    assert isr(cluster) == (1, 2, 3)
    assert "was paused" in caplog.text
