"""Tidelog's client and Java's on the same topics: keys to the same partitions, every byte of a record, transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from drivers import CommandPeer, Record, java_peer

from tidelog.client import Consumer, OffsetSpec, Producer
from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from peer_brokers import Broker, CreateTopic

pytestmark = pytest.mark.peers
pytest_plugins = ["peer_fixtures"]

PARTITIONS = 7
WITHIN_S = 60.0
NOW_MS = SystemClock().now_ms()


@pytest.fixture(scope="module")
def java() -> CommandPeer:
    return java_peer()


async def read(bootstrap: str, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(WITHIN_S), Consumer(bootstrap) as consumer:
        await consumer.assign_topics([topic], OffsetSpec.earliest())
        while len(found) < count:
            found += await consumer.poll()
    return found


def test_keys_go_to_the_same_partitions(
    peer_broker: Broker, java: CommandPeer, topic: str, create_topic: CreateTopic
) -> None:
    keys = [b"%d" % number for number in range(200)] + [b"", b"\x00", b"\xff" * 33]
    create_topic(topic, PARTITIONS)
    stored = java.produce(
        peer_broker.bootstrap, topic, [Record(key, b"java", (), NOW_MS, partition=None) for key in keys]
    )

    async def ours() -> list[int]:
        async with Producer(peer_broker.bootstrap) as producer:
            futures = [await producer.send(topic, b"ours", key=key) for key in keys]
            return [place.partition for place in await asyncio.gather(*futures)]

    assert asyncio.run(ours()) == [place.partition for place in stored]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_reads_what_the_other_writes(
    peer_broker: Broker, java: CommandPeer, topic: str, create_topic: CreateTopic, codec: str
) -> None:
    headers = (("a", b"\x00\xff"), ("a", b""), ("null", None))
    records = [
        Record(b"key", b"value", headers, NOW_MS),
        Record(None, b"x" * 50_000, (), NOW_MS + 1),
        Record(b"tombstone", None, (), NOW_MS + 2),
        Record(b"", b"", headers, NOW_MS + 3),
    ]
    create_topic(topic)

    async def write() -> None:
        async with Producer(peer_broker.bootstrap, compression_type=codec) as producer:
            for record in records:
                await producer.send(
                    topic, record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp
                )

    asyncio.run(write())
    java.produce(peer_broker.bootstrap, topic, records, codec=codec, idempotent=True)
    by_java = java.consume(peer_broker.bootstrap, topic, len(records) * 2)
    assert [received.record for received in by_java] == records * 2
    ours = asyncio.run(read(peer_broker.bootstrap, topic, len(records) * 2))
    assert [Record(each.key, each.value, each.headers, each.timestamp) for each in ours] == records * 2


def test_java_reads_what_we_committed(
    peer_broker: Broker, java: CommandPeer, topic: str, create_topic: CreateTopic
) -> None:
    create_topic(topic)

    async def write() -> None:
        async with Producer(peer_broker.bootstrap, transactional_id=f"id-{topic}") as producer:
            for number in range(10):
                await producer.begin()
                await producer.send_and_wait(topic, b"%d" % number)
                await (producer.commit() if number % 2 else producer.abort())

    asyncio.run(write())
    found = java.consume(peer_broker.bootstrap, topic, 5, isolation="read_committed")
    assert [received.record.value for received in found] == [b"1", b"3", b"5", b"7", b"9"]
