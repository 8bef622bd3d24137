"""Whoever writes a record, its key decides its partition, and alike: clients of all makes can share a topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer  # type: ignore[import-untyped]
from topics import make_topic
from transactional_writers import WAIT_S

from tidelog.client import Producer

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

PARTITIONS = 7
KEYS = [b"%d" % number for number in range(200)] + [b"", b"\x00", b"\xff" * 33, "schlüssel".encode()]


async def with_tidelog(bootstrap: str, topic: str) -> list[int]:
    async with Producer(bootstrap) as producer:
        stored = [await producer.send(topic, b"v", key=key) for key in KEYS]
        return [place.partition for place in await asyncio.gather(*stored)]


async def with_aiokafka(bootstrap: str, topic: str) -> list[int]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        stored = [await producer.send(topic, b"v", key=key) for key in KEYS]
        return [place.partition for place in await asyncio.gather(*stored)]
    finally:
        await producer.stop()


def with_kafka_python(bootstrap: str, topic: str) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        stored = [producer.send(topic, b"v", key=key) for key in KEYS]
        return [future.get(timeout=WAIT_S).partition for future in stored]
    finally:
        producer.close()


def with_confluent(bootstrap: str, topic: str) -> list[int]:
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    found: dict[bytes, int] = {}

    def delivered(_error: KafkaError | None, message: Message) -> None:
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        found[key] = partition

    for key in KEYS:
        producer.produce(topic, b"v", key=key, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return [found[key] for key in KEYS]


@pytest.mark.parametrize("make", ["aiokafka", "kafka-python", "confluent-kafka"])
def test_keys_go_to_the_same_partitions(bootstrap: str, topic: str, make: str) -> None:
    make_topic(bootstrap, topic, PARTITIONS)
    theirs = {
        "aiokafka": lambda: asyncio.run(with_aiokafka(bootstrap, topic)),
        "kafka-python": lambda: with_kafka_python(bootstrap, topic),
        "confluent-kafka": lambda: with_confluent(bootstrap, topic),
    }[make]()
    assert asyncio.run(with_tidelog(bootstrap, topic)) == theirs
    assert set(theirs) == set(range(PARTITIONS))
