"""Positions: consumers that only commit, where a reader starts without one, and commits that are refused."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from group_topics import create_topic
from members import CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON, KINDS, Kind
from streams import Stream, committed_positions, exactly_once

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_fixtures import GroupBroker, MakeGroup

pytest_plugins = ["group_fixtures"]

WITHIN_S = 60.0


@pytest.fixture
def topic(group_broker: GroupBroker) -> str:
    return create_topic(group_broker.bootstrap, f"positions-{uuid.uuid4().hex[:12]}", 2)


@pytest.fixture
def group_name() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def confluent_consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            **named,
        }
    )


# --- consumers that are nobody's members ---


def commit_with_confluent(bootstrap: str, group: str, topic: str, offset: int, note: str) -> None:
    consumer = confluent_consumer(bootstrap, group)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.commit(offsets=[TopicPartition(topic, 0, offset, note)], asynchronous=False)
    finally:
        consumer.close()


def commit_with_kafka_python(bootstrap: str, group: str, topic: str, offset: int, note: str) -> None:
    from kafka import KafkaConsumer, OffsetAndMetadata  # type: ignore[import-untyped]
    from kafka import TopicPartition as Place

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign([Place(topic, 0)])
        consumer.commit({Place(topic, 0): OffsetAndMetadata(offset, note, -1)})
    finally:
        consumer.close()


def commit_with_aiokafka(bootstrap: str, group: str, topic: str, offset: int, note: str) -> None:
    from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
    from aiokafka import TopicPartition as Place

    async def commit() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        consumer.assign([Place(topic, 0)])
        await consumer.start()
        try:
            await consumer.commit({Place(topic, 0): (offset, note)})
        finally:
            await consumer.stop()

    asyncio.run(commit())


def committed_of_confluent(bootstrap: str, group: str, topic: str) -> list[int | None]:
    consumer = confluent_consumer(bootstrap, group)
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in (0, 1)], timeout=WITHIN_S)
    finally:
        consumer.close()
    return [place.offset if place.offset >= 0 else None for place in found]


def committed_of_kafka_python(bootstrap: str, group: str, topic: str) -> list[int | None]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Place

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    try:
        return [consumer.committed(Place(topic, partition)) for partition in (0, 1)]
    finally:
        consumer.close()


def committed_of_aiokafka(bootstrap: str, group: str, topic: str) -> list[int | None]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Place

    async def ask() -> list[int | None]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        consumer.assign([Place(topic, 0), Place(topic, 1)])
        await consumer.start()
        try:
            return [await consumer.committed(Place(topic, partition)) for partition in (0, 1)]
        finally:
            await consumer.stop()

    return asyncio.run(ask())


COMMITTERS: dict[str, Callable[[str, str, str, int, str], None]] = {
    "confluent": commit_with_confluent,
    "kafka-python": commit_with_kafka_python,
    "aiokafka": commit_with_aiokafka,
}
ASKERS: dict[str, Callable[[str, str, str], list[int | None]]] = {
    "confluent": committed_of_confluent,
    "kafka-python": committed_of_kafka_python,
    "aiokafka": committed_of_aiokafka,
}


@pytest.mark.parametrize("client", COMMITTERS)
def test_a_consumer_that_only_commits(group_broker: GroupBroker, topic: str, group_name: str, client: str) -> None:
    at = group_broker.bootstrap
    assert [ask(at, group_name, topic) for ask in ASKERS.values()] == [[None, None]] * 3

    COMMITTERS[client](at, group_name, topic, 7, "as far as seven")
    assert [ask(at, group_name, topic) for ask in ASKERS.values()] == [[7, None]] * 3

    COMMITTERS[client](at, group_name, topic, 3, "back again")
    assert [ask(at, group_name, topic) for ask in ASKERS.values()] == [[3, None]] * 3


@pytest.mark.parametrize("client", COMMITTERS)
def test_a_commit_keeps_its_note(group_broker: GroupBroker, topic: str, group_name: str, client: str) -> None:
    COMMITTERS[client](group_broker.bootstrap, group_name, topic, 5, "grüße")

    consumer = confluent_consumer(group_broker.bootstrap, group_name)
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WITHIN_S)
    consumer.close()
    assert (found.offset, found.metadata) == (5, "grüße")


def test_a_note_that_is_too_long_is_refused(group_broker: GroupBroker, topic: str, group_name: str) -> None:
    """confluent-kafka counts a closing zero byte as part of the note, so it is not the one to try the limit with."""
    from kafka.errors import OffsetMetadataTooLargeError  # type: ignore[import-untyped]

    at = group_broker.bootstrap
    commit_with_kafka_python(at, group_name, topic, 1, "x" * 4096)
    with pytest.raises(OffsetMetadataTooLargeError):
        commit_with_kafka_python(at, group_name, topic, 2, "x" * 4097)
    assert committed_of_confluent(at, group_name, topic) == [1, None]


def test_a_commit_for_an_unknown_partition_is_refused(group_broker: GroupBroker, topic: str, group_name: str) -> None:
    consumer = confluent_consumer(group_broker.bootstrap, group_name)
    try:
        with pytest.raises(KafkaException) as refusal:
            consumer.commit(offsets=[TopicPartition(topic, 9, 1)], asynchronous=False)
    finally:
        consumer.close()
    assert refusal.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("kind", [CONFLUENT, CONFLUENT_CONSUMER], ids=str)
def test_a_stranger_may_not_commit_for_a_group_that_has_members(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=1)
    ((topic, _),) = group.wanted
    member = group.join(kind)
    group.settle()
    exactly_once(group, stream.send(5, group.wanted))

    with pytest.raises(KafkaException) as refusal:
        commit_with_confluent(group_broker.bootstrap, group.name, topic, 2, "")
    assert refusal.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert committed_positions(group_broker.bootstrap, group.name, group.wanted) == {(topic, 0): 5}

    member.leave()
    commit_with_confluent(group_broker.bootstrap, group.name, topic, 2, "")
    assert committed_positions(group_broker.bootstrap, group.name, group.wanted) == {(topic, 0): 2}
    group.join(kind)
    group.wait_for(lambda: group.deliveries()[topic, 0, 4] == 2, "the records after the commit to come again")
    assert [group.deliveries()[topic, 0, offset] for offset in range(5)] == [1, 1, 2, 2, 2]


# --- where members start ---


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_without_a_position_a_member_starts_where_it_is_told(make_group: MakeGroup, stream: Stream, kind: Kind) -> None:
    group = make_group(partitions=2)
    early = stream.send(5, group.wanted)
    from_now_on = group.join(kind, "--reset=latest")
    group.settle()
    # A member that has just been given its partitions may still be looking up where they end.
    late = set()

    def reads() -> bool:
        late.update(stream.send(1, group.wanted))
        return {place[:2] for place in group.deliveries()} == group.wanted

    group.wait_for(reads, "the member to read what is new")
    from_now_on.leave()
    assert not early & set(group.deliveries())

    again = group.join(kind, "--reset=earliest")
    group.settle()
    exactly_once(group, stream.send(3, group.wanted))
    assert not early & set(again.deliveries()), "a member that has commits starts at them, whatever it is told"


@pytest.mark.parametrize("kind", [CONFLUENT, KAFKA_PYTHON], ids=str)
def test_without_a_position_a_member_fails_if_so_told(make_group: MakeGroup, stream: Stream, kind: Kind) -> None:
    group = make_group(partitions=1)
    stream.send(1, group.wanted)
    member = group.join(kind, "--reset=none")
    assert member.wait_for_failure() != ""
    assert not group.deliveries()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_positions_are_committed_by_themselves(
    group_broker: GroupBroker, make_group: MakeGroup, stream: Stream, kind: Kind
) -> None:
    group = make_group(partitions=2)
    group.join(kind, "--commit=auto")
    group.settle()
    stream.send(5, group.wanted)

    def committed() -> bool:
        held = committed_positions(group_broker.bootstrap, group.name, group.wanted)
        return held == stream.ends()

    group.wait_for(committed, "the positions to be committed")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_may_seek_and_commit_by_hand(
    group_broker: GroupBroker, topic: str, group_name: str, stream: Stream, protocol: str
) -> None:
    stream.send(10, [(topic, 0), (topic, 1)])
    consumer = confluent_consumer(group_broker.bootstrap, group_name, group_protocol=protocol)
    consumer.subscribe([topic])
    try:
        read_some(consumer, 20)
        consumer.seek(TopicPartition(topic, 0, 4))
        assert [message.offset() for message in read_some(consumer, 6)] == [4, 5, 6, 7, 8, 9]
        consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
        (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=WITHIN_S)
        (held,) = consumer.position([TopicPartition(topic, 0)])
        assert (kept.offset, held.offset) == (6, 10)
    finally:
        consumer.close()

    following = confluent_consumer(group_broker.bootstrap, group_name, group_protocol=protocol)
    following.subscribe([topic])
    try:
        offsets = {0: [], 1: []}  # type: dict[int | None, list[int | None]]
        for message in read_some(following, 4 + 10):
            offsets[message.partition()].append(message.offset())
    finally:
        following.close()
    assert offsets == {0: [6, 7, 8, 9], 1: list(range(10))}


def read_some(consumer: Consumer, count: int) -> list[Any]:
    messages: list[Any] = []

    def enough() -> bool:
        fetched = consumer.consume(count - len(messages), 0.1)
        messages.extend(message for message in fetched if message.error() is None)
        return len(messages) >= count

    eventually(enough, f"{count} records", within_s=WITHIN_S)
    return messages
