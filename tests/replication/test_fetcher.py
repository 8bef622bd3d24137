"""Followers copy their leaders: whatever happens on the way, the logs become the same."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from cluster_cases import Cluster
from replica_cases import ORDERS, ORDERS_ID, batch_epochs

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig
from tidelog.errors import ErrorCode
from tidelog.replication.deletions import low_watermark
from tidelog.replication.role import Role
from tidelog.testing.forgetful_fs import Forget
from tidelog.types import TopicPartition
from tidelog.wire.messages.alter_partition import AlterPartitionResponse
from tidelog.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.wire.declare import Message


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made
        assert not [failure for loop in made.loops for failure in loop.failures]


def test_followers_copy_what_is_appended_and_all_of_it_becomes_safe(cluster: Cluster) -> None:
    cluster.lead(1)
    for number in range(20):
        cluster.append(1, b"%d" % number, b"x" * 100)
    cluster.until(lambda: cluster.high_watermarks() == [40, 40, 40])
    assert cluster.same()


def test_an_append_is_safe_after_one_round_trip_of_waiting_fetches(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.pass_time(5)
    started = cluster.timeline.now
    cluster.append(1, b"x")
    cluster.until(lambda: cluster.machines[1].node.partition().high_watermark == 1)
    assert cluster.timeline.now - started < 0.01


def test_an_idle_follower_asks_no_more_often_than_it_may_wait(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.pass_time(5)
    cluster.sent.clear()
    cluster.pass_time(5)
    assert 9 <= len(cluster.fetches(2, 1)) <= 11


def test_a_large_backlog_comes_in_portions(cluster: Cluster) -> None:
    cluster.settings = BrokerConfig.parse(
        {"replica.fetch.max.bytes": "1000", "replica.fetch.response.max.bytes": "5000"}
    )
    cluster.lead(1, isr=(1,))
    for _ in range(50):
        cluster.append(1, b"x" * 500)
    cluster.until(lambda: cluster.same() and cluster.ends() == [50, 50, 50])
    assert len(cluster.fetches(2, 1)) > 20


# --- sessions ---


def test_in_a_session_only_what_has_changed_is_asked_for(cluster: Cluster) -> None:
    places = [TopicPartition("orders", number) for number in range(30)]
    for place in places:
        cluster.lead(1, place=place)
    cluster.pass_time(5)
    cluster.sent.clear()
    cluster.append(1, b"x", place=places[7])
    cluster.until(lambda: cluster.same(places[7]) and cluster.ends(places[7]) == [1, 1, 1])
    cluster.pass_time(2)
    asked = [part.partition for each in cluster.fetches(2, 1) for topic in each.topics for part in topic.partitions]
    assert asked == [7]
    assert all(each.session_epoch > 0 for each in cluster.fetches(2, 1))


def test_a_lost_session_is_begun_anew(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.pass_time(2)
    sessions = cluster.machines[1].services.fetch_sessions
    sessions._sessions.clear()
    cluster.append(1, b"x")
    cluster.append(1, b"y")
    cluster.until(lambda: cluster.high_watermarks() == [2, 2, 2])
    assert len(sessions) == 2


def test_a_leader_without_room_for_sessions_is_asked_for_everything_each_time(cluster: Cluster) -> None:
    for machine in cluster.machines.values():
        machine.services.fetch_sessions._slots = 0
    cluster.lead(1)
    cluster.append(1, b"x")
    cluster.until(lambda: cluster.ends() == [1, 1, 1])
    cluster.append(1, b"y")
    cluster.until(lambda: cluster.ends() == [2, 2, 2])
    assert {each.session_epoch for each in cluster.fetches(2, 1)} == {0}


def test_a_partition_that_moves_to_another_leader_is_forgotten_by_the_old_one(cluster: Cluster) -> None:
    other = TopicPartition("orders", 1)
    cluster.lead(1)
    cluster.lead(1, place=other)
    cluster.pass_time(2)
    cluster.lead(2, place=other)
    cluster.pass_time(2)
    forgotten = [each.forgotten_topics_data for each in cluster.fetches(3, 1) if each.forgotten_topics_data]
    assert [(topic.topic_id, topic.partitions) for topics in forgotten for topic in topics] == [(ORDERS_ID, [1])]
    cluster.append(2, b"x", place=other)
    cluster.until(lambda: cluster.ends(other) == [1, 1, 1])


# --- changes of leader ---


def test_logs_that_diverged_become_byte_for_byte_the_same(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.append(1, b"common")
    cluster.until(lambda: cluster.high_watermarks() == [1, 1, 1])
    cluster.cut |= {(2, 1), (3, 1)}
    cluster.append(1, b"lost", b"with its leader")
    cluster.append(1, b"lost too")
    cluster.lead(2, isr=(2, 3))
    cluster.cut.clear()
    cluster.append(2, b"kept")
    cluster.until(lambda: cluster.same() and cluster.high_watermarks() == [2, 2, 2])
    assert batch_epochs(cluster.machines[1].node.log) == [(0, 0), (1, 1)]


def test_reigns_on_both_sides_of_a_cut_are_walked_back_in_as_many_steps_as_it_takes(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.append(1, b"common")
    cluster.until(lambda: cluster.high_watermarks() == [1, 1, 1])
    cluster.cut = {(one, other) for one in cluster.machines for other in cluster.machines}
    for leader in (1, 2, 1, 2, 1, 2):
        cluster.lead(leader, isr=(leader,))
        cluster.append(leader, b"reign of %d" % leader)
    cluster.cut.clear()
    cluster.lead(3, isr=(3,))
    cluster.append(3, b"the last word")
    cluster.until(lambda: cluster.same() and cluster.high_watermarks() == [2, 2, 2])


def test_a_leader_that_was_told_of_its_role_late_is_asked_again_soon(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.until(lambda: len(cluster.machines[1].services.fetch_sessions) == 2)
    role = replace(cluster.roles[ORDERS], leader=2, leader_epoch=1, partition_epoch=1)
    cluster.roles[ORDERS] = role
    cluster.tell_one(3, role)
    cluster.pass_time(0.1)
    cluster.tell_one(2, role)
    cluster.append(2, b"x")
    cluster.tell_one(1, role)
    started = cluster.timeline.now
    cluster.until(lambda: cluster.high_watermarks()[1] == 1)
    assert cluster.timeline.now - started < 0.2


def test_after_a_change_of_leader_records_become_safe_without_waiting_for_parked_fetches(cluster: Cluster) -> None:
    """Fetches for other partitions of the same leader wait there when the new partition comes along."""
    other = TopicPartition("orders", 1)
    cluster.lead(1)
    cluster.lead(2, place=other)
    cluster.pass_time(10.2)
    started = cluster.timeline.now
    cluster.lead(2)
    cluster.append(2, b"x")
    cluster.until(lambda: cluster.machines[2].node.partition().high_watermark == 1)
    assert cluster.timeline.now - started < 0.1


def test_an_old_leader_that_does_not_know_it_yet_cannot_make_anything_safe(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.pass_time(1)
    role = replace(cluster.roles[ORDERS], leader=2, leader_epoch=1, partition_epoch=1, isr=(2, 3))
    cluster.roles[ORDERS] = role
    for each in (2, 3):
        cluster.tell_one(each, role)
    cluster.append(1, b"never safe")
    cluster.append(2, b"safe")
    cluster.until(lambda: cluster.high_watermarks()[1:] == [1, 1])
    cluster.pass_time(30)
    assert cluster.machines[1].node.partition().high_watermark == 0
    cluster.tell_one(1, role)
    cluster.until(cluster.same)


# --- what a leader's log does ---


def test_a_follower_that_is_too_far_behind_starts_over_where_the_leader_starts(cluster: Cluster) -> None:
    cluster.lead(1, isr=(1,))
    cluster.cut = {(2, 1), (3, 1)}
    cluster.pass_time(1)
    for _ in range(3):
        cluster.append(1, b"x", b"y")
    partition = cluster.machines[1].node.partition()
    cluster.machines[1].run(lambda: partition.delete_records(4))
    cluster.cut.clear()
    cluster.until(lambda: cluster.ends() == [6, 6, 6])
    assert cluster.same()
    assert [each.node.log.log_start_offset for each in cluster.machines.values()] == [4, 4, 4]


def test_a_log_start_in_the_middle_of_a_batch_is_taken_over(cluster: Cluster) -> None:
    cluster.lead(1, isr=(1,))
    cluster.cut = {(2, 1), (3, 1)}
    cluster.append(1, b"a", b"b", b"c")
    partition = cluster.machines[1].node.partition()
    cluster.machines[1].run(lambda: partition.delete_records(2))
    cluster.cut.clear()
    cluster.until(lambda: cluster.ends() == [3, 3, 3])
    assert [each.node.log.log_start_offset for each in cluster.machines.values()] == [2, 2, 2]


def test_deleted_records_are_deleted_everywhere(cluster: Cluster) -> None:
    cluster.lead(1)
    for _ in range(3):
        cluster.append(1, b"x")
    cluster.until(lambda: cluster.high_watermarks() == [3, 3, 3])
    partition = cluster.machines[1].node.partition()
    cluster.machines[1].run(lambda: partition.delete_records(2))
    cluster.until(lambda: [each.node.log.log_start_offset for each in cluster.machines.values()] == [2, 2, 2])
    cluster.until(lambda: low_watermark(partition, set(cluster.machines)) == 2)


def test_a_follower_with_an_empty_log_beyond_the_leaders_end_starts_over(cluster: Cluster) -> None:
    cluster.lead(1, isr=(1,))
    cluster.append(1, b"x")
    for each in (2, 3):
        partition = cluster.machines[each].node.partition()
        cluster.machines[each].run(partial(partition.start_over, 50))
    cluster.until(lambda: cluster.same() and cluster.ends() == [1, 1, 1])


# --- what goes wrong ---


def test_a_leader_that_cannot_be_reached_is_tried_again_with_growing_pauses(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.append(1, b"x")
    cluster.cut.add((2, 1))
    cluster.pass_time(10)
    tries = sum(1 for sender, _to, _what in cluster.sent if sender == 2)
    assert tries < 70
    cluster.cut.clear()
    cluster.until(lambda: cluster.ends() == [1, 1, 1])


def tamper_with_partition(change: Callable[[PartitionData], None], times: int = 3) -> Callable[[int, Message], Message]:
    left = [times]

    def tamper(_sender: int, message: Message) -> Message:
        if isinstance(message, FetchResponse):
            for topic in message.responses:
                for data in topic.partitions:
                    if data.records and left[0] > 0:
                        left[0] -= 1
                        change(data)
        return message

    return tamper


def damage(data: PartitionData) -> None:
    assert isinstance(data.records, bytes | memoryview)
    data.records = bytes(data.records[:-1]) + b"\xff"


def cut_short(data: PartitionData) -> None:
    assert isinstance(data.records, bytes | memoryview)
    data.records = bytes(data.records[:-5])


def other_format(data: PartitionData) -> None:
    assert isinstance(data.records, bytes | memoryview)
    data.records = bytes(data.records[:16]) + b"\x01" + bytes(data.records[17:])


def answer_twice_as_much(data: PartitionData) -> None:
    assert isinstance(data.records, bytes | memoryview)
    data.records = bytes(data.records) * 2


def diverge_into_nonsense(data: PartitionData) -> None:
    data.diverging_epoch = EpochEndOffset(epoch=77, end_offset=77)


def unknown_error(data: PartitionData) -> None:
    data.error_code = 9999


def out_of_range(data: PartitionData) -> None:
    data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    data.log_start_offset = -1


def no_records(data: PartitionData) -> None:
    data.records = None


@pytest.mark.parametrize(
    "change",
    [
        damage,
        cut_short,
        other_format,
        answer_twice_as_much,
        diverge_into_nonsense,
        unknown_error,
        out_of_range,
        no_records,
    ],
)
def test_a_peer_that_answers_nonsense_harms_nothing_and_is_asked_again(
    cluster: Cluster, change: Callable[[PartitionData], None]
) -> None:
    cluster.lead(1)
    cluster.tamper = tamper_with_partition(change)
    for _ in range(5):
        cluster.append(1, b"x" * 50)
        cluster.pass_time(0.3)
    cluster.until(lambda: cluster.same() and cluster.high_watermarks() == [5, 5, 5])


@pytest.mark.parametrize(
    "answer",
    [
        AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=[]),
        FetchResponse(throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, responses=[]),
        FetchResponse(throttle_time_ms=0, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[]),
        FetchResponse(
            throttle_time_ms=0,
            session_id=99,
            responses=[
                FetchableTopicResponse(
                    topic_id=b"unknown topic id",
                    partitions=[
                        PartitionData(
                            partition_index=0, error_code=0, high_watermark=9, aborted_transactions=None, records=b""
                        )
                    ],
                )
            ],
        ),
    ],
    ids=["another message", "refused", "no session", "other partitions"],
)
def test_a_whole_answer_that_makes_no_sense_is_not_taken(cluster: Cluster, answer: Message) -> None:
    left = [4]

    def tamper(_sender: int, message: Message) -> Message:
        if isinstance(message, FetchResponse) and left[0]:
            left[0] -= 1
            return answer
        return message

    cluster.tamper = tamper
    cluster.lead(1)
    cluster.append(1, b"x")
    cluster.until(lambda: cluster.same() and cluster.high_watermarks() == [1, 1, 1])
    assert left == [0]


def test_an_answer_that_comes_after_a_change_of_role_is_not_taken(cluster: Cluster) -> None:
    """Broker 2 becomes leader while a reply to its fetch is on the way: it must not append that to its own log."""
    cluster.lead(1)
    cluster.pass_time(1)
    cluster.append(1, b"on its way")
    follower = cluster.machines[2]
    cluster.until(lambda: any(isinstance(each, FetchResponse) for each in replies_seen(cluster)))
    role = replace(cluster.roles[ORDERS], leader=2, leader_epoch=1, partition_epoch=1)
    cluster.tell(role)
    end = follower.node.log.log_end_offset
    cluster.append(2, b"mine")
    cluster.pass_time(2)
    assert batch_epochs(follower.node.log)[-1] == (end, 1)
    cluster.until(cluster.same)


def replies_seen(cluster: Cluster) -> list[Message]:
    """Puts an ear at the network."""
    seen: list[Message] = []
    if getattr(cluster, "heard", None) is None:
        cluster.heard = seen  # type: ignore[attr-defined]

        def tamper(_sender: int, message: Message) -> Message:
            cluster.heard.append(message)  # type: ignore[attr-defined]
            return message

        cluster.tamper = tamper
    heard: list[Message] = cluster.heard  # type: ignore[attr-defined]
    return heard


def test_a_follower_whose_disk_fails_pauses_that_partition_and_copies_the_others(cluster: Cluster) -> None:
    other = TopicPartition("orders", 1)
    cluster.lead(1)
    cluster.lead(1, place=other)
    cluster.pass_time(1)
    cluster.machines[2].node.log._health.fail("the disk is gone")
    cluster.append(1, b"x")
    cluster.append(1, b"y", place=other)
    cluster.until(lambda: cluster.ends(other) == [1, 1, 1])
    assert cluster.ends() == [1, 0, 1]


# --- many partitions, throttles, fsync ---


def test_many_partitions_of_several_leaders_are_copied_together(cluster: Cluster) -> None:
    cluster.settings = BrokerConfig.parse({"num.replica.fetchers": "3"})
    places = [TopicPartition("orders", number) for number in range(60)]
    for place in places:
        cluster.lead(1 + place.partition % 3, place=place)
    for place in places:
        for _ in range(1 + place.partition % 4):
            cluster.append(1 + place.partition % 3, b"x" * (1 + place.partition), place=place)
    cluster.until(
        lambda: all(cluster.same(place) and len(set(cluster.high_watermarks(place))) == 1 for place in places)
    )
    cluster.until(
        lambda: all(cluster.high_watermarks(place)[0] == 1 + place.partition % 4 for place in places), within_s=5
    )


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_throttled_replicas_out_of_sync_are_copied_no_faster_than_the_rate(side: str) -> None:
    config = TopicConfig(
        leader_replication_throttled_replicas=("*",) if side == "leader" else (),
        follower_replication_throttled_replicas=("*",) if side == "follower" else (),
    )
    with Cluster(config=config, brokers=(1, 2)) as cluster:
        cluster.settings = BrokerConfig.parse(
            {f"{side}.replication.throttled.rate": "10000", "replica.fetch.max.bytes": "5000"}
        )
        for machine in cluster.machines.values():
            machine.services.settings.broker = cluster.settings
        cluster.lead(1, isr=(1,))
        cluster.cut.add((2, 1))
        for _ in range(50):
            cluster.append(1, b"x" * 2000)
        cluster.cut.clear()
        started = cluster.timeline.now
        cluster.until(lambda: cluster.ends() == [50, 50], within_s=100)
        assert 7 <= cluster.timeline.now - started <= 13
        cluster.until(lambda: cluster.roles[ORDERS].isr == (1, 2))
        started = cluster.timeline.now
        for _ in range(50):
            cluster.append(1, b"x" * 2000)
        cluster.until(lambda: cluster.ends() == [100, 100])
        assert cluster.timeline.now - started < 2, "in sync, it is not held back"


def test_with_fsync_before_ack_a_record_is_safe_only_when_it_is_on_the_disks_of_all() -> None:
    with Cluster(config=TopicConfig(tidelog_fsync_before_ack="true")) as cluster:
        cluster.lead(1)
        for number in range(10):
            cluster.append(1, b"%d" % number)
        cluster.until(lambda: cluster.machines[1].node.partition().high_watermark >= 5)
        high_watermark = cluster.machines[1].node.partition().high_watermark
        for machine in cluster.machines.values():
            machine.kill(Forget.EVERYTHING)
        for machine in cluster.machines.values():
            machine.start()
        cluster.lead(3)
        assert all(end >= high_watermark for end in cluster.ends())


def test_a_stopped_broker_fetches_no_more(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.pass_time(1)
    machine = cluster.machines[2]
    cluster.run(machine.fetchers.stop(), machine.loop)
    cluster.run(machine.keeper.stop(), machine.loop)
    cluster.sent.clear()
    cluster.append(1, b"x")
    cluster.pass_time(5)
    assert not cluster.fetches(2, 1)


def test_an_observer_is_copied_to_and_never_waited_for(cluster: Cluster) -> None:
    cluster.tell(Role(ORDERS, ORDERS_ID, 1, 0, (1, 2), (1, 2, 3), 0, observers=(3,)))
    cluster.append(1, b"x")
    cluster.until(lambda: cluster.high_watermarks() == [1, 1, 1])
    cluster.cut.add((3, 1))
    cluster.append(1, b"y")
    cluster.until(lambda: cluster.high_watermarks()[:2] == [2, 2], within_s=2)
    cluster.pass_time(60)
    assert cluster.roles[ORDERS].isr == (1, 2)
