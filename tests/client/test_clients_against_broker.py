"""Producer, Consumer and Admin against the real broker, and against another implementation of the protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.client import (
    Admin,
    BrokerError,
    ConfigResource,
    Consumer,
    ConsumerConfig,
    ErrorCode,
    OffsetSpec,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from tidelog.client.descriptions import ConfigSource
from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.testing import BrokerProcess, StartBroker

TODAY_MS = SystemClock().now_ms()
"""Records that look old would be deleted as such."""

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


async def produce(bootstrap: str, topic: str, count: int, config: ProducerConfig | None = None) -> None:
    async with Producer(bootstrap, config) as producer:
        deliveries = [await producer.send(topic, b"%d" % number, key=b"k%d" % (number % 7)) for number in range(count)]
        await producer.flush()
        for delivery in deliveries:
            delivery.result()


async def consume(bootstrap: str, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    async with Consumer(bootstrap) as consumer:
        await consumer.assign_topics([topic], OffsetSpec.earliest())
        while len(found) < count:
            found += await consumer.poll()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_every_byte_comes_back_in_order(bootstrap: str, topic: str, codec: str) -> None:
    sizes = [0, 1, 100, 10_000, 1_000_000]

    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=2)
        config = ProducerConfig(compression_type=codec)
        headers: list[tuple[str, bytes | None]] = [("trace", b"\x00\xff"), ("empty", b""), ("null", None)]
        async with Producer(bootstrap, config) as producer:
            for index, size in enumerate(sizes):
                value = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
                stored = await producer.send_and_wait(
                    topic, value, key=b"same key", headers=headers, timestamp_ms=TODAY_MS + index
                )
                assert stored.offset == index
            await producer.send_and_wait(topic, None, key=b"same key")
        records = await consume(bootstrap, topic, len(sizes) + 1)
        assert [record.offset for record in records] == list(range(len(sizes) + 1))
        assert [len(record.value) for record in records[:-1]] == sizes
        assert records[-1].value is None
        assert all(record.headers == tuple(headers) for record in records[:-1])
        assert [record.timestamp for record in records[:-1]] == [TODAY_MS + at for at in range(len(sizes))]

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_every_acknowledgement_works(bootstrap: str, topic: str, acks: Any) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=3)
        await produce(bootstrap, topic, 3000, ProducerConfig(acks=acks, batch_size=5000))
        records = await consume(bootstrap, topic, 3000)
        assert sorted(int(record.value) for record in records) == list(range(3000))
        for partition in range(3):
            numbers = [int(record.value) for record in records if record.partition == partition]
            assert numbers == sorted(numbers)

    asyncio.run(scenario())


def test_a_topic_is_created_by_producing_to_it(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        await produce(bootstrap, topic, 10)
        assert len(await consume(bootstrap, topic, 10)) == 10

    asyncio.run(scenario())


def test_topics_are_looked_after(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            created = await admin.create_topic(topic, partitions=2, configs={"retention.ms": "1000000"})
            assert (created.partitions, created.replication_factor) == (2, 1)
            with pytest.raises(BrokerError) as caught:
                await admin.create_topic(topic)
            assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert topic in [each.name for each in await admin.list_topics()]
            await admin.add_partitions(topic, 5)
            described = await admin.describe_topic(topic)
            assert [partition.index for partition in described.partitions] == [0, 1, 2, 3, 4]
            assert described.topic_id == created.topic_id
            with pytest.raises(BrokerError):
                await admin.add_partitions(topic, 3)
            await admin.delete_topic(topic)
            assert topic not in [each.name for each in await admin.list_topics()]
            with pytest.raises(BrokerError):
                await admin.describe_topic(topic)

    asyncio.run(scenario())


def test_settings_are_shown_and_changed(bootstrap: str, topic: str) -> None:
    resource = ConfigResource.of_topic(topic)

    async def shown(admin: Admin) -> tuple[str | None, ConfigSource]:
        (entry,) = await admin.describe_configs(resource, ["retention.ms"])
        return entry.value, entry.source

    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic)
            before = await shown(admin)
            await admin.alter_configs(resource, set={"retention.ms": "12345"}, validate_only=True)
            assert await shown(admin) == before
            await admin.alter_configs(resource, set={"retention.ms": "12345"})
            assert await shown(admin) == ("12345", ConfigSource.TOPIC)
            await admin.alter_configs(resource, delete=["retention.ms"])
            assert await shown(admin) == before
            with pytest.raises(BrokerError) as caught:
                await admin.alter_configs(resource, set={"retention.ms": "soon"})
            assert caught.value.code == ErrorCode.INVALID_CONFIG
            assert any(entry.name == "log.dirs" for entry in await admin.describe_configs(ConfigResource.of_broker(0)))

    asyncio.run(scenario())


def test_offsets_are_found_and_records_deleted(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=1)
            async with Producer(bootstrap) as producer:
                for number in range(10):
                    await producer.send_and_wait(topic, b"v", timestamp_ms=TODAY_MS + number * 1000)

            async def at(spec: OffsetSpec) -> int | None:
                found = (await admin.list_offsets({partition: spec}))[partition]
                return found.offset if found is not None else None

            assert await at(OffsetSpec.earliest()) == 0
            assert await at(OffsetSpec.latest()) == 10
            assert await at(OffsetSpec.max_timestamp()) == 9
            assert await at(OffsetSpec.at_timestamp(TODAY_MS + 3500)) == 4
            assert await at(OffsetSpec.at_timestamp(TODAY_MS + 3_600_000)) is None
            assert await admin.delete_records({partition: 4}) == {partition: 4}
            assert await at(OffsetSpec.earliest()) == 4
            refused = (await admin.delete_records({partition: 99}))[partition]
            assert isinstance(refused, BrokerError)
            assert refused.code == ErrorCode.OFFSET_OUT_OF_RANGE
        async with Consumer(bootstrap, ConsumerConfig(auto_offset_reset="earliest")) as consumer:
            await consumer.assign({partition: 0})
            assert (await consumer.poll())[0].offset == 4

    asyncio.run(scenario())


def test_the_cluster_describes_itself(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(topic, partitions=2)
            cluster = await admin.describe_cluster()
            assert [(node.id, node.port) for node in cluster.brokers] == [(0, broker.port)]
            assert cluster.controller_id == 0
            (log_dir,) = await admin.describe_log_dirs()
            assert (log_dir.broker, log_dir.path) == (0, str(broker.data_dir))
            assert {TopicPartition(topic, 0), TopicPartition(topic, 1)} <= set(log_dir.partition_bytes)

    asyncio.run(scenario())


def test_producer_and_consumer_outlive_a_killed_broker(fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker()
    count = 2000

    async def send(producer: Producer, killed: asyncio.Event) -> None:
        for number in range(count):
            await producer.send(topic, b"%d" % number)
            if number % 100 == 0:
                await producer.flush()
            if number == count // 2:
                killed.set()
        await producer.flush()

    async def scenario() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(topic, partitions=1)
        quick = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50}
        async with (
            Producer(broker.bootstrap, ProducerConfig(**quick, linger_ms=0)) as producer,  # type: ignore[arg-type]
            Consumer(broker.bootstrap, ConsumerConfig(**quick)) as consumer,  # type: ignore[arg-type]
        ):
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            killed = asyncio.Event()
            sending = asyncio.create_task(send(producer, killed))
            await killed.wait()
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            numbers: list[int] = []
            while len(numbers) < count:
                numbers += [int(record.value or b"") for record in await consumer.poll()]
            await sending
            assert numbers == list(range(count)), "none lost, none twice, none out of order"

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """Two brokers inside librdkafka: another implementation's opinion of what we send."""
    from confluent_kafka import Producer as LibrdkafkaProducer

    owner = LibrdkafkaProducer({"test.mock.num.brokers": 2, "bootstrap.servers": "unused", "log_level": 0})
    brokers = owner.list_topics(timeout=30).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


@pytest.mark.parametrize("codec", CODECS)
def test_two_brokers_of_another_kind_are_served_too(mock_cluster: str, topic: str, codec: str) -> None:
    async def scenario() -> None:
        await produce(mock_cluster, topic, 1000, ProducerConfig(compression_type=codec, batch_size=2000))
        records = await consume(mock_cluster, topic, 1000)
        assert sorted(int(record.value) for record in records) == list(range(1000))
        assert len({record.partition for record in records}) > 1
        for partition in {record.partition for record in records}:
            numbers = [int(record.value) for record in records if record.partition == partition]
            assert numbers == sorted(numbers)

    asyncio.run(scenario())
