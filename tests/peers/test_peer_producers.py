"""The ways in which each client may produce: acknowledgements, idempotence, timestamps by the broker, refusals."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from drivers import Record
from stored_batches import stored_batches

if TYPE_CHECKING:
    from drivers import Peer
    from peer_brokers import Broker, CreateTopic

pytestmark = pytest.mark.peers
pytest_plugins = ["peer_fixtures"]

each_peer = pytest.mark.parametrize("peer_name", ["java", "franz-go", "kafkajs", "confluent"])

# librdkafka has a name of its own for this one.
TOO_LARGE = {"confluent": "MSG_SIZE_TOO_LARGE"}


def plain_records(count: int, size: int = 100) -> list[Record]:
    start_ms = int(time.time() * 1000) - 60_000
    return [Record(b"key %d" % place, b"v" * size, (), start_ms + place) for place in range(count)]


@each_peer
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_level_of_acknowledgement(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, peer_name: str, acks: str
) -> None:
    topic = create_topic(f"acks-{acks}-{peer_name}")
    records = plain_records(50)

    deliveries = peers[peer_name].produce(peer_broker.bootstrap, topic, records, acks=acks)

    assert {delivery.error for delivery in deliveries} == {None}
    if acks != "0":  # without an acknowledgement nobody tells the offset
        assert [delivery.offset for delivery in deliveries] == list(range(50))
    received = peers["franz-go"].consume(peer_broker.bootstrap, topic, 50)
    assert [item.record for item in received] == records


@each_peer
def test_idempotent_producers_number_their_batches(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, peer_name: str
) -> None:
    topic = create_topic(f"idempotent-{peer_name}")
    records = plain_records(60, size=1_000)

    for part in (records[:30], records[30:]):
        deliveries = peers[peer_name].produce(peer_broker.bootstrap, topic, part, idempotent=True, batch_bytes=5_000)
        assert {delivery.error for delivery in deliveries} == {None}

    batches = stored_batches(peer_broker.data_dir, topic)
    producer_ids = {batch.producer_id for batch in batches}
    assert len(producer_ids) == 2
    assert min(producer_ids) >= 0
    for producer_id in producer_ids:
        own = [batch for batch in batches if batch.producer_id == producer_id]
        assert own[0].base_sequence == 0
        assert len(own) > 1
        assert all(
            following.base_sequence == earlier.base_sequence + earlier.record_count
            for earlier, following in pairwise(own)
        )
    received = peers["confluent"].consume(peer_broker.bootstrap, topic, 60)
    assert [item.record for item in received] == records


def test_java_is_idempotent_on_all_partitions_at_once(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic
) -> None:
    topic = create_topic("idempotent-partitions", partitions=6)
    records = [
        Record(record.key, record.value, (), record.timestamp, partition=place % 6)
        for place, record in enumerate(plain_records(600, size=1_000))
    ]

    deliveries = peers["java"].produce(peer_broker.bootstrap, topic, records, idempotent=True, batch_bytes=3_000)

    assert {delivery.error for delivery in deliveries} == {None}
    for partition in range(6):
        own = [record for record in records if record.partition == partition]
        received = peers["confluent"].consume(peer_broker.bootstrap, topic, len(own), partition=partition)
        assert [item.record for item in received] == own


@each_peer
def test_the_broker_stamps_its_own_time(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, peer_name: str
) -> None:
    topic = create_topic(f"append-time-{peer_name}", config={"message.timestamp.type": "LogAppendTime"})
    records = plain_records(5)
    before_ms = int(time.time() * 1000)

    deliveries = peers["confluent"].produce(peer_broker.bootstrap, topic, records, codec="gzip")

    after_ms = int(time.time() * 1000)
    assert {delivery.error for delivery in deliveries} == {None}
    received = peers[peer_name].consume(peer_broker.bootstrap, topic, 5)
    assert all(before_ms <= item.record.timestamp <= after_ms for item in received)
    assert {item.timestamp_type for item in received} <= {"LogAppendTime", None}
    assert [item.record.key for item in received] == [record.key for record in records]


@each_peer
def test_a_batch_over_the_topics_limit_is_refused(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, peer_name: str
) -> None:
    topic = create_topic(f"too-large-{peer_name}", config={"max.message.bytes": "1000"})

    deliveries = peers[peer_name].produce(peer_broker.bootstrap, topic, plain_records(1, size=5_000))

    assert [delivery.error for delivery in deliveries] == [TOO_LARGE.get(peer_name, "MESSAGE_TOO_LARGE")]
    assert stored_batches(peer_broker.data_dir, topic) == []


def test_java_splits_a_batch_that_is_too_large(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic
) -> None:
    topic = create_topic("split", config={"max.message.bytes": "5000"})
    records = plain_records(40, size=1_000)

    deliveries = peers["java"].produce(peer_broker.bootstrap, topic, records, idempotent=True)

    assert {delivery.error for delivery in deliveries} == {None}
    assert all(batch.size <= 5_000 for batch in stored_batches(peer_broker.data_dir, topic))
    received = peers["java"].consume(peer_broker.bootstrap, topic, 40)
    assert [item.record for item in received] == records


@pytest.mark.parametrize("peer_name", ["java", "franz-go", "confluent"])
def test_a_compacted_topic_wants_keys(
    peer_broker: Broker, peers: dict[str, Peer], create_topic: CreateTopic, peer_name: str
) -> None:
    topic = create_topic(f"keyless-{peer_name}", config={"cleanup.policy": "compact"})
    keyless = [Record(None, b"value", (), int(time.time() * 1000))]

    deliveries = peers[peer_name].produce(peer_broker.bootstrap, topic, keyless)

    assert [delivery.error for delivery in deliveries] == ["INVALID_RECORD"]


@pytest.mark.parametrize("peer_name", ["java", "kafkajs", "confluent"])
def test_producing_creates_the_topic(peer_broker: Broker, peers: dict[str, Peer], peer_name: str) -> None:
    topic = f"created-by-{peer_name}"
    records = plain_records(3)

    deliveries = peers[peer_name].produce(peer_broker.bootstrap, topic, records)

    assert [delivery.offset for delivery in deliveries] == [0, 1, 2]
    received = peers[peer_name].consume(peer_broker.bootstrap, topic, 3)
    assert [item.record for item in received] == records
