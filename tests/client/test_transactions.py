"""Transactions of our producer on a real broker, by the newer rules and by the older ones, read by another client."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from committed_reader import committed_values
from confluent_kafka import Producer as LibrdkafkaProducer

from tidelog.client import Admin, Consumer, OffsetSpec, Producer, TopicPartition
from tidelog.client.errors import (
    Closed,
    InvalidState,
    ProducerFenced,
    RecordTooLarge,
    TransactionFailed,
)
from tidelog.client.transactions import line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@pytest.fixture(params=["newer rules", "older rules"])
def at(request: pytest.FixtureRequest, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker; by the older rules the client finds no word of transaction.version among its features."""
    if request.param == "older rules":
        monkeypatch.setattr(line, "TRANSACTION_VERSION", "a feature that no broker has")
    return bootstrap


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """Two brokers inside librdkafka, which know the older rules only, and fence nobody."""
    owner = LibrdkafkaProducer({"test.mock.num.brokers": 2, "bootstrap.servers": "unused", "log_level": 0})
    brokers = owner.list_topics(timeout=30).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


@pytest.fixture
def name() -> str:
    return f"transactional-{uuid.uuid4().hex[:12]}"


async def create(at: str, topic: str, partitions: int = 1) -> None:
    async with Admin(at) as admin:
        await admin.create_topic(topic, partitions=partitions)


async def in_transaction(producer: Producer, topic: str, values: Iterable[bytes], *, then_fail: bool = False) -> None:
    async with producer.transaction():
        for value in values:
            await producer.send(topic, value)
        if then_fail:
            await producer.flush()
            raise ZeroDivisionError


def test_committed_records_are_seen_and_aborted_ones_never(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic, 3)
        async with Producer(at, transactional_id=name, linger_ms=0) as producer:
            for round_ in range(4):
                async with producer.transaction():
                    for number in range(30):
                        await producer.send(topic, b"good-%d-%d" % (round_, number), partition=number % 3)
                with pytest.raises(ZeroDivisionError):
                    await in_transaction(producer, topic, [b"bad"], then_fail=True)

    asyncio.run(scenario())
    expected = {b"good-%d-%d" % (round_, number) for round_ in range(4) for number in range(30)}
    found = committed_values(at, topic, 3)
    assert len(found) == len(expected)
    assert set(found) == expected


def test_commit_delivers_what_is_buffered_and_abort_drops_it(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=600_000) as producer:
            await producer.begin()
            kept = await producer.send(topic, b"kept")
            await producer.commit()
            assert kept.result().offset == 0
            await producer.begin()
            dropped = await producer.send(topic, b"dropped")
            await producer.abort()
            with pytest.raises(TransactionFailed, match="aborted"):
                dropped.result()

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"kept"]


def test_empty_transactions_cost_nothing_and_change_nothing(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer(at, transactional_id=name) as producer:
            for _ in range(3):
                async with producer.transaction():
                    pass
                await producer.begin()
                await producer.abort()
            async with producer.transaction():
                await producer.send(topic, b"one")

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"one"]


def test_records_need_a_transaction_and_transactions_a_name(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer(at, transactional_id=name) as producer:
            with pytest.raises(InvalidState, match="begin"):
                await producer.send(topic, b"x")
            for call in (producer.commit, producer.abort):
                with pytest.raises(InvalidState):
                    await call()
            await producer.begin()
            with pytest.raises(InvalidState):
                await producer.begin()
            await producer.abort()
        with pytest.raises(Closed):
            await producer.begin()
        async with Producer(at) as plain:
            with pytest.raises(InvalidState, match="transactional_id"):
                await plain.begin()

    asyncio.run(scenario())


def test_whoever_takes_the_name_over_fences_the_one_before_and_aborts_what_he_left(
    at: str, topic: str, name: str
) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as first:
            await first.begin()
            await first.send_and_wait(topic, b"left open")
            async with Producer(at, transactional_id=name, linger_ms=0) as second:
                with pytest.raises(ProducerFenced, match="close this producer"):
                    await first.commit()
                for call in (first.begin, first.commit, first.abort):
                    with pytest.raises(ProducerFenced):
                        await call()
                async with second.transaction():
                    await second.send(topic, b"second")

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"second"]


def test_a_fenced_producer_cannot_write_either(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as first:
            await first.begin()
            await first.send_and_wait(topic, b"left open")
            async with Producer(at, transactional_id=name):
                delivery = await first.send(topic, b"late")
                await asyncio.wait([delivery])
                assert delivery.exception() is not None
                with pytest.raises((TransactionFailed, ProducerFenced)):
                    await first.commit()
                with pytest.raises(ProducerFenced):
                    await first.abort()

    asyncio.run(scenario())
    assert committed_values(at, topic) == []


def test_closing_aborts_what_is_open(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name) as producer:
            await producer.begin()
            await producer.send_and_wait(topic, b"open")

    asyncio.run(scenario())
    assert committed_values(at, topic) == []  # and nothing holds its readers up


def test_a_refused_record_fails_the_transaction_and_the_next_one_goes_on(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        async with Admin(at) as admin:
            await admin.create_topic(topic, partitions=1, configs={"max.message.bytes": "1000"})
        async with Producer(at, transactional_id=name, linger_ms=0) as producer:
            with pytest.raises(TransactionFailed, match="do its work again"):
                await in_transaction(producer, topic, [b"small", b"x" * 2000])
            await in_transaction(producer, topic, [b"after"])
            with pytest.raises(RecordTooLarge):
                await in_transaction(producer, topic, [b"x" * 2_000_000])
            await in_transaction(producer, topic, [b"at last"])

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"after", b"at last"]


def test_cancelling_aborts_and_the_next_transaction_waits_for_it(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as producer:
            inside = asyncio.Event()

            async def endless() -> None:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"cancelled")
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(endless())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send(topic, b"kept")
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"kept"]


def test_positions_count_with_the_records_or_not_at_all(at: str, topic: str, name: str) -> None:
    source, group = f"{topic}-in", f"group-{name}"
    place = TopicPartition(source, 0)

    async def scenario() -> None:
        await create(at, source)
        await create(at, topic)
        async with Producer(at) as producer:
            for number in range(10):
                await producer.send(source, b"%d" % number)
        async with (
            Consumer(
                at, group_id=group, topics=[source], auto_offset_reset="earliest", enable_auto_commit=False
            ) as consumer,
            Producer(at, transactional_id=name) as producer,
        ):
            read: list[Any] = []
            while len(read) < 10:
                read += await consumer.poll()
            await producer.begin()
            await producer.send(topic, b"not this")
            await producer.send_offsets(consumer.positions(), consumer.group_metadata())
            await producer.abort()
            assert (await consumer.committed([place]))[place] is None
            async with producer.transaction():
                for record in read[:4]:
                    await producer.send(topic, record.value)
                await producer.send_offsets({place: read[4].offset}, consumer.group_metadata())
            committed = (await consumer.committed([place]))[place]
            assert committed is not None
            assert committed.offset == 4
            await producer.begin()
            await producer.send(topic, b"nor this")
            stranger = consumer.group_metadata()._replace(generation_id=99)
            with pytest.raises(TransactionFailed, match="abort it"):
                await producer.send_offsets(consumer.positions(), stranger)
            with pytest.raises(TransactionFailed):
                await producer.commit()
            await producer.abort()

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"0", b"1", b"2", b"3"]


def test_several_tasks_share_one_transaction(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic, 4)
        async with (
            Producer(at, transactional_id=name, linger_ms=1) as producer,
            producer.transaction(),
            asyncio.TaskGroup() as tasks,
        ):
            for partition in range(4):
                tasks.create_task(write(producer, partition))

    async def write(producer: Producer, partition: int) -> None:
        for number in range(50):
            await producer.send(topic, b"%d" % number, partition=partition)

    asyncio.run(scenario())
    assert committed_values(at, topic, 4) == [b"%d" % number for number in range(50)] * 4


def test_our_own_consumer_reads_only_what_is_committed(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as producer:
            for number in range(6):
                await producer.begin()
                await producer.send_and_wait(topic, b"%d" % number)
                await (producer.commit() if number % 2 else producer.abort())
        async with Consumer(at, isolation_level="read_committed") as consumer:
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            found: list[bytes | None] = []
            while len(found) < 3:
                found += [record.value for record in await consumer.poll()]
            assert found == [b"1", b"3", b"5"]

    asyncio.run(scenario())


def test_brokers_of_another_kind_take_our_transactions(mock_cluster: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        async with Producer(mock_cluster, transactional_id=name, linger_ms=0) as producer:
            for _ in range(3):
                async with producer.transaction():
                    for number in range(20):
                        await producer.send(topic, b"%d" % number, partition=number % 4)
                    await producer.send_offsets({TopicPartition(topic, 0): 5}, f"group-{name}")
            await producer.begin()
            await producer.send_and_wait(topic, b"aborted")
            await producer.abort()
            async with Producer(mock_cluster, transactional_id=name) as second, second.transaction():
                await second.send(topic, b"second")

    asyncio.run(scenario())
