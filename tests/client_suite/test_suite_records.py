"""The same against every broker: what is sent comes back, row by row and as Arrow, from wherever one asks for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from suite_reading import WITHIN_S, by_partition, read_all, take
from suite_targets import PARTITIONS, Target, everywhere, on_real_brokers

from tidelog.client import Consumer, OffsetSpec, Producer, TopicPartition
from tidelog.client.blocking import Consumer as BlockingConsumer
from tidelog.client.blocking import Producer as BlockingProducer
from tidelog.client.partitioner import partition_for_key
from tidelog.clock import SystemClock

pytest_plugins = ["suite_fixtures"]

NOW_MS = SystemClock().now_ms()
"""Records that look old would be deleted as such."""

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@everywhere
@pytest.mark.parametrize("codec", CODECS)
def test_every_byte_of_a_record_comes_back(target: Target, topic: str, codec: str) -> None:
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"\x00\xff"), ("a", b""), ("null", None), ("é", b"x"))
    sent: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", headers),
        (b"", b"", headers),
        (b"tombstone", None, ()),
        (None, None, ()),
        (b"large", bytes(range(256)) * 3000, headers),
    ]

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, compression_type=codec) as producer:
            for number, (key, value, fields) in enumerate(sent):
                await producer.send(topic, value, key=key, headers=fields, timestamp_ms=NOW_MS + number, partition=1)
        found = await read_all(target.bootstrap, topic, len(sent))
        assert [(record.key, record.value, record.headers) for record in found] == sent
        assert [record.timestamp for record in found] == [NOW_MS + number for number in range(len(sent))]
        assert [record.offset for record in found] == list(range(len(sent)))

    asyncio.run(scenario())


@everywhere
@pytest.mark.parametrize("acks", ["all", 1])
def test_many_records_keep_their_order_by_key(target: Target, topic: str, acks: Literal["all", 1]) -> None:
    check_order_by_key(target, topic, acks)


@on_real_brokers
def test_many_records_that_nobody_acknowledges_keep_their_order_by_key(target: Target, topic: str) -> None:
    """The mock acknowledges them nevertheless, which no broker may do, and which ends the connection."""
    check_order_by_key(target, topic, acks=0)


def check_order_by_key(target: Target, topic: str, acks: Literal["all", 1, 0]) -> None:
    count = 2000

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, acks=acks, batch_size=4000) as producer:
            deliveries = [await producer.send(topic, b"%d" % n, key=b"k%d" % (n % 23)) for n in range(count)]
        stored = [delivery.result() for delivery in deliveries]
        assert [each.partition for each in stored] == [
            partition_for_key(b"k%d" % (n % 23), PARTITIONS) for n in range(count)
        ]
        found = await read_all(target.bootstrap, topic, count)
        for partition, values in by_partition(found).items():
            assert values == [b"%d" % n for n in range(count) if stored[n].partition == partition]
        if acks != 0:
            offsets = {(record.partition, record.offset): record.value for record in found}
            assert all(offsets[each.partition, each.offset] == b"%d" % n for n, each in enumerate(stored))

    asyncio.run(scenario())


@everywhere
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_arrow_goes_in_and_comes_out(target: Target, topic: str, codec: str) -> None:
    count = 3000
    header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([None if n % 5 == 0 else b"k%d" % n for n in range(count)], pa.binary()),
            "value": pa.array([None if n % 7 == 0 else b"v%d" % n for n in range(count)], pa.binary()),
            "partition": pa.array([n % PARTITIONS for n in range(count)], pa.int32()),
            "timestamp": pa.array([(NOW_MS + n) * 1000 for n in range(count)], pa.timestamp("us")),
            "headers": pa.array(
                [[{"key": "n", "value": b"%d" % n}] if n % 3 else None for n in range(count)], header_type
            ),
        }
    )

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, compression_type=codec) as producer:
            delivery = await (await producer.send_batch(topic, table))
            assert delivery.rows == count
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(WITHIN_S), Consumer(target.bootstrap) as consumer:
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            async for batch in consumer.batches():
                found += batch.to_pylist()
                if len(found) >= count:
                    break
        found.sort(key=lambda row: row["timestamp"])
        for name in ("key", "value", "partition"):
            assert [row[name] for row in found] == table.column(name).to_pylist()
        assert [row["offset"] for row in found] == [n // PARTITIONS for n in range(count)]
        assert [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in found] == [NOW_MS + n for n in range(count)]
        assert [bool(row["headers"]) for row in found] == [bool(n % 3) for n in range(count)]
        assert {row["topic"] for row in found} == {topic}
        rows = await read_all(target.bootstrap, topic, count)
        assert sorted(record.value or b"" for record in rows) == sorted(row["value"] or b"" for row in found)

    asyncio.run(scenario())


@everywhere
def test_a_consumer_goes_where_it_is_told(target: Target, topic: str) -> None:
    one, two = TopicPartition(topic, 1), TopicPartition(topic, 2)

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap) as producer, Consumer(target.bootstrap) as consumer:
            for number in range(20):
                await producer.send(topic, b"%d" % number, partition=1 + number % 2)
            await producer.flush()
            assert await consumer.beginning_offsets([one, two]) == {one: 0, two: 0}
            assert await consumer.end_offsets([one, two]) == {one: 10, two: 10}
            await consumer.assign({one: 4, two: OffsetSpec.latest()})
            assert [record.offset for record in await take(consumer, 3)] == [4, 5, 6]
            assert consumer.position(one) == 7
            await consumer.seek(one, 2)
            assert [record.offset for record in await take(consumer, 2)] == [2, 3]
            await consumer.seek_to_beginning(one)
            assert (await take(consumer, 1))[0].offset == 0
            await consumer.seek_to_end()
            assert consumer.positions() == {one: 10, two: 10}
            await producer.send_and_wait(topic, b"new", partition=2)
            (record,) = await take(consumer, 1)
            assert (record.partition, record.offset, record.value) == (2, 10, b"new")

    asyncio.run(scenario())


@everywhere
def test_paused_partitions_wait(target: Target, topic: str) -> None:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap) as producer, Consumer(target.bootstrap) as consumer:
            for number in range(40):
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()
            await consumer.assign(dict.fromkeys(places, OffsetSpec.earliest()))
            consumer.pause(*places[1:])
            assert consumer.paused == frozenset(places[1:])
            assert {record.partition for record in await take(consumer, 10)} == {0}
            assert await consumer.poll(0.05) == []
            consumer.resume(*places[1:])
            assert {record.partition for record in await take(consumer, 30)} == {1, 2, 3}

    asyncio.run(scenario())


@on_real_brokers
def test_places_are_found_by_time(target: Target, topic: str) -> None:
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap) as producer:
            for number in range(10):
                await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=NOW_MS + number * 1000)
        async with Consumer(target.bootstrap) as consumer:
            asked = {zero: NOW_MS + 3500, one: NOW_MS}
            assert await consumer.offsets_for_times(asked) == {zero: 4, one: None}
            await consumer.assign({zero: 0, one: 0})
            await consumer.seek_to_timestamp(NOW_MS + 6001, zero)
            assert [record.offset for record in await take(consumer, 3)] == [7, 8, 9]

    asyncio.run(scenario())


@everywhere
def test_iterating_waits_for_records_to_come(target: Target, topic: str) -> None:
    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, linger_ms=0) as producer, Consumer(target.bootstrap) as consumer:
            await consumer.assign_topics([topic], OffsetSpec.latest())
            seen = 0
            await producer.send(topic, b"0")
            async with asyncio.timeout(WITHIN_S):
                async for record in consumer:
                    assert record.value == b"%d" % seen
                    seen += 1
                    if seen == 5:
                        break
                    await producer.send(topic, b"%d" % seen)

    asyncio.run(scenario())


@everywhere
def test_values_are_what_the_application_means(target: Target, topic: str) -> None:
    def write(value: dict[str, int]) -> bytes:
        return json.dumps(value).encode()

    def read(data: bytes) -> dict[str, int]:
        return dict(json.loads(data))

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, key_serializer=str.encode, value_serializer=write) as producer:
            for number in range(10):
                await producer.send(topic, {"n": number}, key=f"k{number}")
            await producer.send(topic, None, key="gone")
        found = await read_all(target.bootstrap, topic, 11, key_deserializer=bytes.decode, value_deserializer=read)
        assert {record.key: record.value for record in found} == {
            **{f"k{number}": {"n": number} for number in range(10)},
            "gone": None,
        }

    asyncio.run(scenario())


@everywhere
def test_the_blocking_clients_do_the_same(target: Target, topic: str) -> None:
    asyncio.run(target.make_topic(topic))
    with BlockingProducer[bytes, bytes](target.bootstrap) as producer:
        deliveries = [producer.send(topic, b"%d" % n, key=b"k%d" % n) for n in range(100)]
        producer.flush()
        places = [delivery.result(WITHIN_S).partition for delivery in deliveries]
    assert places == [partition_for_key(b"k%d" % n, PARTITIONS) for n in range(100)]
    found = []
    with BlockingConsumer[bytes, bytes](target.bootstrap) as consumer:
        consumer.assign_topics([topic], OffsetSpec.earliest())
        for record in consumer:
            found.append(record.value)
            if len(found) == 100:
                break
    assert sorted(value or b"" for value in found) == sorted(b"%d" % n for n in range(100))
