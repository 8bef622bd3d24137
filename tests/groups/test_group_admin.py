"""Groups seen from outside: listed, described, their positions changed, and deleted, by two clients' admin calls."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException, TopicPartition
from confluent_kafka._model import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from members import AIOKAFKA, CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON, KINDS, Kind
from streams import Stream, exactly_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from group_fixtures import GroupBroker, MakeGroup
    from members import Group

pytest_plugins = ["group_fixtures"]

WITHIN_S = 60.0


@pytest.fixture
def admin(group_broker: GroupBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": group_broker.bootstrap, "log_level": 3})


@pytest.fixture
def kafka_python_admin(group_broker: GroupBroker) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]

    client = KafkaAdminClient(bootstrap_servers=group_broker.bootstrap)
    yield client
    client.close()


def described(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group], request_timeout=WITHIN_S)[group].result(WITHIN_S)


def listed(admin: AdminClient, **filters: Any) -> dict[str, Any]:
    found = admin.list_consumer_groups(request_timeout=WITHIN_S, **filters).result(WITHIN_S)
    assert not found.errors
    return {entry.group_id: entry for entry in found.valid}


def delete(admin: AdminClient, group: str) -> None:
    admin.delete_consumer_groups([group], request_timeout=WITHIN_S)[group].result(WITHIN_S)


def positions(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked], request_timeout=WITHIN_S)[group].result(WITHIN_S)
    return {(place.topic, place.partition): place.offset for place in found.topic_partitions}


def alter(admin: AdminClient, group: str, places: list[TopicPartition]) -> list[Any]:
    wanted = ConsumerGroupTopicPartitions(group, places)
    done = admin.alter_consumer_group_offsets([wanted], request_timeout=WITHIN_S)[group].result(WITHIN_S)
    return [place.error.code() if place.error else None for place in done.topic_partitions]


def used_group(make_group: MakeGroup, stream: Stream, kind: Kind = CONFLUENT) -> Group:
    """A group on two partitions whose only member has left, with five records read from each."""
    group = make_group(partitions=2)
    member = group.join(kind)
    group.settle()
    exactly_once(group, stream.send(5, group.wanted))
    member.leave()
    return group


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_group_is_described_while_it_lives(
    admin: AdminClient, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=4)
    assignor = "uniform" if kind.protocol == "consumer" else "range"
    group.join(kind, f"--assignor={assignor}")
    group.join(kind, f"--assignor={assignor}")
    group.settle()
    exactly_once(group, stream.send(1, group.wanted))

    def stable() -> bool:
        return bool(described(admin, group.name).state == ConsumerGroupState.STABLE)

    group.wait_for(stable, "the group to be called stable")
    description = described(admin, group.name)

    assert description.group_id == group.name
    assert description.partition_assignor == assignor
    assert description.type == (
        ConsumerGroupType.CONSUMER if kind.protocol == "consumer" else ConsumerGroupType.CLASSIC
    )
    assert description.coordinator.port > 0
    assert len({member.member_id for member in description.members}) == 2
    assert all(member.client_id and "127.0.0.1" in member.host for member in description.members)
    told = sorted(sorted(places_of(member.assignment.topic_partitions)) for member in description.members)
    assert told == sorted(sorted(member.owned()) for member in group.members)
    entry = listed(admin)[group.name]
    assert (entry.state, entry.type) == (ConsumerGroupState.STABLE, description.type)
    assert group.name in listed(admin, states={ConsumerGroupState.STABLE})
    assert group.name not in listed(admin, states={ConsumerGroupState.EMPTY})
    assert group.name in listed(admin, types={description.type})


def test_a_group_of_both_protocols_is_described(admin: AdminClient, make_group: MakeGroup, stream: Stream) -> None:
    group = make_group(partitions=4)
    group.join(CONFLUENT, "--assignor=range")
    group.settle()
    group.join(CONFLUENT_CONSUMER)
    group.settle()
    exactly_once(group, stream.send(1, group.wanted))

    description = described(admin, group.name)

    assert description.type == ConsumerGroupType.CONSUMER
    assert len(description.members) == 2


def test_static_members_are_named(admin: AdminClient, make_group: MakeGroup) -> None:
    group = make_group(partitions=2)
    group.join(KAFKA_PYTHON, "--instance=left", "--assignor=range")
    group.join(AIOKAFKA, "--instance=right", "--assignor=range")
    group.settle()

    names = {member.group_instance_id for member in described(admin, group.name).members}

    assert names == {"left", "right"}


def test_kafka_python_describes_members(kafka_python_admin: Any, make_group: MakeGroup) -> None:
    group = make_group(partitions=2)
    group.join(KAFKA_PYTHON, "--assignor=range")
    group.settle()

    description = kafka_python_admin.describe_groups([group.name])[group.name]

    assert description["error"] is None
    assert (description["group_state"], description["protocol_type"], description["protocol_data"]) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = description["members"]
    assert member["client_id"].startswith("kafka-python")
    (share,) = member["member_assignment"]["assigned_partitions"]
    assert {(share["topic"], partition) for partition in share["partitions"]} == group.wanted
    (entry,) = [entry for entry in kafka_python_admin.list_groups() if entry["group_id"] == group.name]
    assert (entry["protocol_type"], entry["group_state"], entry["group_type"]) == ("consumer", "Stable", "classic")


@pytest.mark.parametrize("kind", [CONFLUENT, CONFLUENT_CONSUMER], ids=str)
def test_a_group_that_all_have_left_is_empty_and_can_be_deleted(
    admin: AdminClient, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = used_group(make_group, stream, kind)
    assert described(admin, group.name).state == ConsumerGroupState.EMPTY
    assert group.name in listed(admin, states={ConsumerGroupState.EMPTY})
    assert positions(admin, group.name) == stream.ends()

    delete(admin, group.name)
    assert group.name not in listed(admin)
    assert positions(admin, group.name) == {}
    with pytest.raises(KafkaException) as refusal:
        delete(admin, group.name)
    assert refusal.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("kind", [CONFLUENT, CONFLUENT_CONSUMER], ids=str)
def test_a_group_with_members_is_not_deleted(admin: AdminClient, make_group: MakeGroup, kind: Kind) -> None:
    group = make_group(partitions=1)
    group.join(kind)
    group.settle()

    with pytest.raises(KafkaException) as refusal:
        delete(admin, group.name)

    assert refusal.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    assert group.name in listed(admin)


def test_kafka_python_deletes_groups(kafka_python_admin: Any, make_group: MakeGroup, stream: Stream) -> None:
    group = used_group(make_group, stream)
    unknown = f"unknown-{uuid.uuid4().hex}"

    assert kafka_python_admin.delete_groups([group.name, unknown]) == {
        group.name: "OK",
        unknown: "GroupIdNotFoundError",
    }
    assert group.name not in {entry["group_id"] for entry in kafka_python_admin.list_groups()}


def test_a_group_that_never_was(admin: AdminClient, kafka_python_admin: Any) -> None:
    unknown = f"unknown-{uuid.uuid4().hex}"

    assert positions(admin, unknown) == {}
    assert described(admin, unknown).state == ConsumerGroupState.DEAD
    with pytest.raises(KafkaException) as refusal:
        delete(admin, unknown)
    assert refusal.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    assert kafka_python_admin.list_group_offsets(unknown) == {unknown: {}}
    assert unknown not in listed(admin)


@pytest.mark.parametrize("kind", [CONFLUENT, CONFLUENT_CONSUMER], ids=str)
def test_positions_are_altered_while_nobody_reads(
    admin: AdminClient, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = used_group(make_group, stream, kind)
    ((topic, _), _) = sorted(group.wanted)

    assert alter(admin, group.name, [TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 5)]) == [None, None]
    assert positions(admin, group.name) == {(topic, 0): 2, (topic, 1): 5}
    group.join(kind)
    group.wait_for(lambda: group.deliveries()[topic, 0, 4] == 2, "the records after the new position")
    assert [group.deliveries()[topic, 0, offset] for offset in range(5)] == [1, 1, 2, 2, 2]
    assert [group.deliveries()[topic, 1, offset] for offset in range(5)] == [1, 1, 1, 1, 1]
    assert alter(admin, group.name, [TopicPartition(topic, 0, 0)]) == [KafkaError.UNKNOWN_MEMBER_ID]


def test_kafka_python_alters_resets_and_deletes_positions(
    kafka_python_admin: Any, make_group: MakeGroup, stream: Stream
) -> None:
    from kafka import OffsetAndMetadata  # type: ignore[import-untyped]
    from kafka import TopicPartition as Place
    from kafka.admin import OffsetSpec

    group = used_group(make_group, stream)
    ((topic, _), _) = sorted(group.wanted)
    one, two = Place(topic, 0), Place(topic, 1)

    done = kafka_python_admin.alter_group_offsets(group.name, {one: OffsetAndMetadata(3, "by hand", -1)})
    assert {place: error.errno for place, error in done.items()} == {one: 0}
    kafka_python_admin.reset_group_offsets(group.name, {two: OffsetSpec.EARLIEST})
    held = kafka_python_admin.list_group_offsets({group.name: None})[group.name]
    assert {place: (at.offset, at.metadata) for place, at in held.items()} == {one: (3, "by hand"), two: (0, "")}

    deleted = kafka_python_admin.delete_group_offsets(group.name, [one])
    assert {place: error.errno for place, error in deleted.items()} == {one: 0}
    held = kafka_python_admin.list_group_offsets({group.name: None})[group.name]
    assert {place: at.offset for place, at in held.items()} == {two: 0}


@pytest.mark.parametrize("kind", [CONFLUENT, CONFLUENT_CONSUMER], ids=str)
def test_positions_of_a_subscribed_topic_are_not_deleted(
    kafka_python_admin: Any, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    from kafka import TopicPartition as Place
    from kafka.errors import GroupSubscribedToTopicError  # type: ignore[import-untyped]

    group = make_group(partitions=1)
    ((topic, _),) = group.wanted
    group.join(kind)
    group.settle()
    exactly_once(group, stream.send(1, group.wanted))

    refused = kafka_python_admin.delete_group_offsets(group.name, [Place(topic, 0)])

    assert refused == {Place(topic, 0): GroupSubscribedToTopicError}
    held = kafka_python_admin.list_group_offsets({group.name: None})[group.name]
    assert {place: at.offset for place, at in held.items()} == {Place(topic, 0): 1}


def test_members_are_removed_from_outside(
    kafka_python_admin: Any, admin: AdminClient, make_group: MakeGroup, stream: Stream
) -> None:
    """The one way to be rid of a static member before its session ends."""
    from kafka.admin import MemberToRemove

    group = make_group(partitions=2)
    gone = group.join(KAFKA_PYTHON, "--instance=gone", "--session-ms=60000")
    group.join(KAFKA_PYTHON, "--instance=staying", "--session-ms=60000")
    group.settle()
    gone.leave()
    assert len(described(admin, group.name).members) == 2

    kafka_python_admin.remove_group_members(group.name, [MemberToRemove(group_instance_id="gone")])

    group.settle()
    exactly_once(group, stream.send(5, group.wanted))
    assert {member.group_instance_id for member in described(admin, group.name).members} == {"staying"}


def places_of(partitions: list[TopicPartition]) -> list[tuple[str, int]]:
    return [(place.topic, place.partition) for place in partitions]
