"""The same against every broker: groups share, commit and go on; topics and settings are looked after."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest
from suite_reading import WITHIN_S, take
from suite_targets import PARTITIONS, Target, everywhere, on_real_brokers

from tidelog.client import (
    Admin,
    BrokerError,
    ConfigResource,
    Consumer,
    ErrorCode,
    OffsetSpec,
    Producer,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytest_plugins = ["suite_fixtures"]

COUNT = 40


def member(target: Target, topic: str, protocol: Literal["classic", "consumer"] = "classic") -> Consumer[Any, Any]:
    return Consumer(
        target.bootstrap,
        group_id=f"group-{topic}",
        group_protocol=protocol,
        topics=[topic],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
        fetch_max_wait_ms=100,
    )


async def fill(target: Target, topic: str) -> None:
    async with Producer(target.bootstrap) as producer:
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def polling(consumers: list[Consumer[Any, Any]], until: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not until():
            await asyncio.gather(*(consumer.poll(0.05) for consumer in consumers))


async def goes_on(target: Target, topic: str, protocol: Literal["classic", "consumer"]) -> None:
    await target.make_topic(topic)
    await fill(target, topic)
    async with member(target, topic, protocol) as consumer:
        first = await take(consumer, 15)
        await consumer.commit()
        positions = consumer.positions()
        committed = await consumer.committed()
        assert {place: None if found is None else found.offset for place, found in committed.items()} == positions
        await take(consumer, 5)  # is not committed, and comes again
    async with member(target, topic, protocol) as consumer:
        rest = await take(consumer, COUNT - 15)
        await consumer.commit_soon()
    assert sorted(int(record.value or b"") for record in [*first, *rest]) == list(range(COUNT))


async def shares(target: Target, topic: str, protocol: Literal["classic", "consumer"]) -> None:
    await target.make_topic(topic)
    everything = {TopicPartition(topic, number) for number in range(PARTITIONS)}
    async with member(target, topic, protocol) as stays:
        async with member(target, topic, protocol) as goes:
            both = [stays, goes]
            await polling(both, lambda: [len(each.assignment) for each in both] == [PARTITIONS // 2] * 2)
            assert stays.assignment | goes.assignment == everything
        await polling([stays], lambda: stays.assignment == everything)


@everywhere
def test_a_group_goes_on_where_it_committed(group_target: Target, topic: str) -> None:
    asyncio.run(goes_on(group_target, topic, "classic"))


@on_real_brokers
def test_a_group_of_the_newer_protocol_goes_on_where_it_committed(target: Target, topic: str) -> None:
    asyncio.run(goes_on(target, topic, "consumer"))


@on_real_brokers
def test_members_share_partitions_and_inherit_them(target: Target, topic: str) -> None:
    asyncio.run(shares(target, topic, "classic"))


@on_real_brokers
def test_members_of_the_newer_protocol_share_partitions_and_inherit_them(target: Target, topic: str) -> None:
    asyncio.run(shares(target, topic, "consumer"))


@on_real_brokers
def test_topics_are_looked_after(target: Target, topic: str) -> None:
    zero, settings = TopicPartition(topic, 0), ConfigResource.of_topic(topic)

    async def scenario() -> None:
        async with Admin(target.bootstrap) as admin:
            cluster = await admin.describe_cluster()
            assert len(cluster.brokers) == target.brokers
            assert cluster.controller_id in {broker.id for broker in cluster.brokers}
            created = await admin.create_topic(
                topic, partitions=2, replication_factor=target.brokers, configs={"retention.ms": "7200000"}
            )
            assert (created.partitions, created.replication_factor) == (2, target.brokers)
            with pytest.raises(BrokerError) as refused:
                await admin.create_topic(topic, partitions=2, replication_factor=1)
            assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            await admin.add_partitions(topic, PARTITIONS)
            async with Producer(target.bootstrap) as producer:
                await fill_one(producer, topic)

            async def grown() -> bool:
                return len((await admin.describe_topic(topic)).partitions) == PARTITIONS

            async def changed() -> bool:
                (entry,) = await admin.describe_configs(settings, ["retention.ms"])
                return entry.value == "3600000"

            await until(grown)
            assert topic in [each.name for each in await admin.list_topics()]
            await admin.alter_configs(settings, set={"retention.ms": "3600000"})
            await until(changed)
            assert await admin.delete_records({zero: 6}) == {zero: 6}
            found = (await admin.list_offsets({zero: OffsetSpec.earliest()}))[zero]
            assert found is not None
            assert found.offset == 6
            sizes = [log_dir.partition_bytes.get(zero, 0) for log_dir in await admin.describe_log_dirs()]
            assert sum(size > 0 for size in sizes) == target.brokers
            await admin.delete_topic(topic)

    asyncio.run(scenario())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """The brokers of a cluster hear of changes one after the other."""
    async with asyncio.timeout(WITHIN_S):
        while not await holds():
            pass


async def fill_one(producer: Producer[Any, Any], topic: str) -> None:
    for number in range(10):
        await producer.send(topic, b"%d" % number, partition=0)
    await producer.flush()
