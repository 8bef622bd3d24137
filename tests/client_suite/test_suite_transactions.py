"""The same against every broker that has transactions: all or nothing, read and written together, zombies fenced."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from suite_reading import WITHIN_S, by_partition, read_all, take
from suite_targets import PARTITIONS, Target, everywhere, on_real_brokers

from tidelog.client import Consumer, OffsetSpec, Producer, ProducerFenced, TopicPartition

pytest_plugins = ["suite_fixtures"]


class ChangedMindError(Exception):
    """What the application raises."""


@everywhere
def test_transactions_are_committed(target: Target, topic: str) -> None:
    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, transactional_id=f"id-{topic}") as producer:
            for first in range(0, 30, 10):
                async with producer.transaction():
                    for number in range(first, first + 10):
                        await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        # What the mock writes at the end of a transaction does not match its checksum.
        found = by_partition(await read_all(target.bootstrap, topic, 30, check_crcs=target.real))
        assert found == {
            partition: [b"%d" % number for number in range(partition, 30, PARTITIONS)]
            for partition in range(PARTITIONS)
        }

    asyncio.run(scenario())


@on_real_brokers
def test_what_is_aborted_is_never_read(target: Target, topic: str) -> None:
    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, transactional_id=f"id-{topic}") as producer:
            for number in range(6):
                await producer.begin()
                await producer.send(topic, b"%d" % number, partition=0)
                await producer.send(topic, b"%d" % number, partition=1)
                if number % 2:
                    await producer.commit()
                else:
                    await producer.flush()
                    await producer.abort()
            with contextlib.suppress(ChangedMindError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"never", partition=0)
                    raise ChangedMindError
            async with producer.transaction():
                await producer.send(topic, b"last", partition=0)
                await producer.send(topic, b"last", partition=1)
        found = by_partition(await read_all(target.bootstrap, topic, 8, isolation_level="read_committed"))
        assert found == {0: [b"1", b"3", b"5", b"last"], 1: [b"1", b"3", b"5", b"last"]}
        assert len(await read_all(target.bootstrap, topic, 15)) == 15

    asyncio.run(scenario())


@on_real_brokers
def test_a_copy_takes_up_where_the_last_committed_one_was(target: Target, topic: str) -> None:
    source, count = f"{topic}-in", 40

    async def life(records: int, *, survives: bool) -> None:
        async with (
            Consumer[Any, Any](
                target.bootstrap,
                group_id=f"group-{topic}",
                topics=[source],
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                enable_auto_commit=False,
            ) as consumer,
            Producer[Any, Any](target.bootstrap, transactional_id=f"id-{topic}") as producer,
        ):
            await producer.begin()
            for record in await take(consumer, records):
                await producer.send(topic, record.value, partition=record.partition)
            await producer.send_offsets(consumer.positions(), consumer.group_metadata())
            if survives:
                await producer.commit()

    async def scenario() -> None:
        for name in (source, topic):
            await target.make_topic(name)
        async with Producer(target.bootstrap) as producer:
            for number in range(count):
                await producer.send(source, b"%d" % number, partition=number % PARTITIONS)
        await life(10, survives=True)
        await life(20, survives=False)
        await life(30, survives=True)
        found = by_partition(await read_all(target.bootstrap, topic, count, isolation_level="read_committed"))
        assert found == {
            partition: [b"%d" % number for number in range(partition, count, PARTITIONS)]
            for partition in range(PARTITIONS)
        }

    asyncio.run(scenario())


@on_real_brokers
def test_who_was_replaced_writes_nothing_more(target: Target, topic: str) -> None:
    zero = TopicPartition(topic, 0)

    async def scenario() -> None:
        await target.make_topic(topic)
        async with Producer(target.bootstrap, transactional_id=f"id-{topic}") as zombie:
            await zombie.begin()
            await zombie.send_and_wait(topic, b"zombie", partition=0)
            async with Producer(target.bootstrap, transactional_id=f"id-{topic}") as successor:
                async with successor.transaction():
                    await successor.send(topic, b"successor", partition=0)
                with pytest.raises(ProducerFenced):
                    await zombie.commit()
        async with Consumer(target.bootstrap, isolation_level="read_committed") as consumer:
            await consumer.assign({zero: OffsetSpec.earliest()})
            assert [record.value for record in await take(consumer, 1)] == [b"successor"]

    asyncio.run(scenario())


@on_real_brokers
def test_what_is_open_holds_back_what_comes_after(target: Target, topic: str) -> None:
    zero = TopicPartition(topic, 0)

    async def scenario() -> None:
        await target.make_topic(topic)
        async with (
            asyncio.timeout(WITHIN_S),
            Producer(target.bootstrap, transactional_id=f"id-{topic}") as producer,
            Producer(target.bootstrap) as other,
            Consumer(target.bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50) as careful,
            Consumer(target.bootstrap) as careless,
        ):
            await producer.begin()
            await producer.send_and_wait(topic, b"open", partition=0)
            await other.send_and_wait(topic, b"after", partition=0)
            for consumer in (careful, careless):
                await consumer.assign({zero: OffsetSpec.earliest()})
            assert [record.value for record in await take(careless, 2)] == [b"open", b"after"]
            assert await careful.end_offsets([zero]) == {zero: 0}
            assert await careful.poll(0.2) == []
            await producer.commit()
            assert [record.value for record in await take(careful, 2)] == [b"open", b"after"]

    asyncio.run(scenario())
