"""What each broker is told: its roles, the metadata, what it must stop; merged while it does not answer."""

from __future__ import annotations

from dataclasses import replace

from tidelog.controller.dispatch import (
    FULL,
    INCREMENTAL,
    Outbox,
    Outboxes,
    Requests,
    Seal,
    Stop,
    tell_changes,
    tell_gone,
    tell_to_delete,
    write_requests,
)
from tidelog.controller.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from tidelog.controller.transitions import PartitionChange
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.codec import decode, to_bytes

SEAL = Seal(controller_id=1, controller_epoch=4, listener="INSIDE")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = PartitionImage((1, 2), (1, 2), 1, 3, 5), PartitionImage((2, 3), (2,), 2, 6, 8)


def an_image() -> ClusterImage:
    image = ClusterImage("cluster", 1)
    for broker_id in (1, 2, 4):
        endpoints = {"INSIDE": Endpoint(f"host{broker_id}", 9092, 3)}
        image.brokers[broker_id] = BrokerImage(broker_id, endpoints, f"rack{broker_id}", epoch=100 + broker_id)
    image.put_topic(TopicImage("t", TopicId(b"t" * 16), [FIRST, SECOND]))
    return image


def outboxes() -> Outboxes:
    return {1: Outbox(), 2: Outbox(), 4: Outbox()}


def written(outbox: Outbox, broker_id: int, image: ClusterImage | None = None) -> Requests:
    image = image or an_image()
    requests = write_requests(outbox, image.brokers[broker_id], image, SEAL)
    for request in requests[:3]:
        if request is not None:
            newest = type(request).VERSIONS.last
            assert decode(type(request), to_bytes(request, newest), newest) == request
    return requests


def roles_in(requests: Requests) -> dict[tuple[str, int], tuple[int, int, list[int], bool]]:
    assert requests.leader_and_isr is not None
    return {
        (topic.topic_name, state.partition_index): (state.leader, state.leader_epoch, state.isr, state.is_new)
        for topic in requests.leader_and_isr.topic_states
        for state in topic.partition_states
    }


def metadata_in(requests: Requests) -> dict[tuple[str, int], int]:
    assert requests.update_metadata is not None
    return {
        (topic.topic_name, state.partition_index): state.leader
        for topic in requests.update_metadata.topic_states
        for state in topic.partition_states
    }


def stops_in(requests: Requests) -> dict[tuple[str, int], tuple[int, bool]]:
    assert requests.stop_replica is not None
    return {
        (topic.topic_name, state.partition_index): (state.leader_epoch, state.delete_partition)
        for topic in requests.stop_replica.topic_states
        for state in topic.partition_states
    }


def test_replicas_are_told_their_roles_and_everybody_the_metadata() -> None:
    told = outboxes()
    tell_changes(told, [PartitionChange(T0, replace(FIRST, leader=2), FIRST), PartitionChange(T1, SECOND, SECOND)])
    assert roles_in(written(told[1], 1)) == {("t", 0): (1, 3, [1, 2], False)}
    assert roles_in(written(told[2], 2)).keys() == {("t", 0), ("t", 1)}
    nobodys = written(told[4], 4)
    assert nobodys.leader_and_isr is None
    assert nobodys.stop_replica is None
    for broker_id, outbox in told.items():
        assert metadata_in(written(outbox, broker_id)) == {("t", 0): 1, ("t", 1): 2}


def test_requests_carry_both_epochs_and_where_brokers_are() -> None:
    told = outboxes()
    tell_changes(told, [PartitionChange(T0, FIRST, FIRST)])
    requests = written(told[2], 2)
    for request in (requests.leader_and_isr, requests.update_metadata):
        assert request is not None
        assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 4, 102)
        assert request.type == INCREMENTAL
    assert requests.leader_and_isr is not None
    assert [(each.broker_id, each.host_name) for each in requests.leader_and_isr.live_leaders] == [(1, "host1")]
    assert requests.update_metadata is not None
    assert [(each.id, each.rack) for each in requests.update_metadata.live_brokers] == [
        (1, "rack1"),
        (2, "rack2"),
        (4, "rack4"),
    ]
    assert requests.update_metadata.live_brokers[0].endpoints[0].security_protocol == 3


def test_a_new_partition_is_new_to_its_replicas() -> None:
    told = outboxes()
    tell_changes(told, [PartitionChange(T0, None, FIRST)])
    assert roles_in(written(told[1], 1))["t", 0][3]
    tell_changes(told, [PartitionChange(T0, FIRST, FIRST)])
    assert roles_in(written(told[1], 1))["t", 0][3], "it has not been told yet"


def test_an_added_replica_is_new_and_a_dropped_one_stops_and_deletes() -> None:
    told = outboxes()
    tell_changes(told, [PartitionChange(T0, replace(FIRST, replicas=(4, 1)), FIRST)])
    assert roles_in(written(told[2], 2))["t", 0][3]
    assert not roles_in(written(told[1], 1))["t", 0][3]
    assert stops_in(written(told[4], 4)) == {("t", 0): (3, True)}


def test_replicas_away_are_offline_in_the_metadata() -> None:
    told = outboxes()
    tell_changes(told, [PartitionChange(T1, SECOND, SECOND)])
    request = written(told[1], 1).update_metadata
    assert request is not None
    assert request.topic_states[0].partition_states[0].offline_replicas == [3]


def test_one_that_knows_nothing_is_told_everything_and_where_leaders_are_before_it_follows_them() -> None:
    outbox = Outbox(full=True)
    requests = written(outbox, 2)
    assert requests.metadata_first
    assert roles_in(requests).keys() == {("t", 0), ("t", 1)}
    assert metadata_in(requests).keys() == {("t", 0), ("t", 1)}
    assert requests.leader_and_isr is not None
    assert requests.update_metadata is not None
    assert requests.leader_and_isr.type == requests.update_metadata.type == FULL
    assert not written(Outbox(full=True), 4).leader_and_isr.topic_states  # type: ignore[union-attr]


def test_a_deleted_topic_disappears_from_metadata_and_its_replicas_are_deleted() -> None:
    told, image = outboxes(), an_image()
    topic = image.drop_topic("t")
    tell_gone(told, topic)
    tell_to_delete(told[1], 1, topic)
    requests = written(told[1], 1, image)
    assert metadata_in(requests) == {("t", 0): -2, ("t", 1): -2}
    assert stops_in(requests) == {("t", 0): (-2, True)}
    assert written(told[4], 4, image).stop_replica is None


def test_a_topic_created_again_comes_after_its_predecessor_has_gone() -> None:
    told, image = outboxes(), an_image()
    tell_gone(told, image.drop_topic("t"))
    image.put_topic(TopicImage("t", TopicId(b"u" * 16), [FIRST]))
    tell_changes(told, [PartitionChange(T0, None, FIRST)])
    request = written(told[1], 1, image).update_metadata
    assert request is not None
    assert [topic.topic_id[:1] for topic in request.topic_states] == [b"t", b"u"]


def test_what_is_about_topics_that_are_gone_is_left_out() -> None:
    told, image = outboxes(), an_image()
    tell_changes(told, [PartitionChange(T0, FIRST, FIRST)])
    image.drop_topic("t")
    assert not roles_in(written(told[1], 1, image))
    assert not metadata_in(written(told[1], 1, image))


def test_the_newest_state_is_told_once() -> None:
    told, image = outboxes(), an_image()
    tell_changes(told, [PartitionChange(T0, FIRST, FIRST)])
    newer = replace(FIRST, leader=2, leader_epoch=4)
    image.topics["t"].partitions[0] = newer
    tell_changes(told, [PartitionChange(T0, FIRST, newer)])
    assert roles_in(written(told[1], 1, image)) == {("t", 0): (2, 4, [1, 2], False)}


def test_what_was_not_delivered_is_merged_with_what_came_since() -> None:
    unsent = Outbox(
        roles={T0: True, T1: False},
        metadata={T0: None},
        stops={TopicPartition("u", 0): Stop(1, delete=True)},
        full=True,
    )
    since = Outbox(brokers=True)
    since.add_role(T0, is_new=False)
    since.add_stop(T1, Stop(9, delete=True))
    since.add_role(TopicPartition("u", 0), is_new=False)
    since.put_back(unsent)
    assert since == Outbox(
        roles={T0: True, TopicPartition("u", 0): False},
        metadata={T0: None},
        stops={T1: Stop(9, delete=True)},
        brokers=True,
        full=True,
    )


def test_an_empty_outbox_is_empty() -> None:
    assert not Outbox()
    assert written(Outbox(), 1)[:3] == (None, None, None)
    assert Outbox(brokers=True)
