"""What Admin must be able to do with any broker: run against Tidelog here, and against Apache Kafka among the peers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.client import (
    Admin,
    BrokerError,
    ConfigResource,
    Consumer,
    ErrorCode,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
)
from tidelog.client.administration.groups import MemberToRemove
from tidelog.client.descriptions import ConfigSource
from tidelog.client.offsets import OffsetAndMetadata
from tidelog.types import Offset

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE_S = 30


async def becomes(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """A broker may hear of a change a little after the controller has confirmed it."""
    found = await ask()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while found != expected:
                found = await ask()
    except TimeoutError:
        raise AssertionError(f"{found} does not become {expected}") from None


async def fill(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=0)
        await producer.flush()


async def topics_and_partitions(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap, client_id="admin-suite") as admin:
        outcomes = await admin.create_topics([NewTopic(topic, 2, 1), NewTopic(f"{topic}-bad", 1, 99)])
        assert list(outcomes.errors) == [f"{topic}-bad"]
        assert outcomes.errors[f"{topic}-bad"].code == ErrorCode.INVALID_REPLICATION_FACTOR
        with pytest.raises(BrokerError):
            outcomes.results()
        await admin.add_partitions(topic, 3)

        async def partitions() -> int:
            return len((await admin.describe_topic(topic)).partitions)

        await becomes(3, partitions)
        await fill(bootstrap, topic, 10)
        first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        deleted = (await admin.delete_records({first: 4, empty: -1})).results()
        assert deleted == {first: 4, empty: 0}
        found = await admin.list_offsets({first: OffsetSpec.earliest(), empty: OffsetSpec.latest()})
        assert [each.offset for each in found.values() if each is not None] == [4, 0]
        gone = await admin.delete_topics([topic, f"{topic}-never"])
        assert gone[topic] is None
        assert gone.errors[f"{topic}-never"].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(BrokerError, match=f"{topic}-never"):
            gone.results()


async def settings_of_topics_and_brokers(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1, configs={"retention.ms": "86400000"})
        await fill(bootstrap, topic, 1)  # by then the broker knows the topic
        resource = ConfigResource.of_topic(topic)

        async def value(key: str) -> tuple[str | None, ConfigSource]:
            (entry,) = await admin.describe_configs(resource, [key])
            return entry.value, entry.source

        assert await value("retention.ms") == ("86400000", ConfigSource.TOPIC)
        default = await value("max.message.bytes")
        await admin.alter_configs(resource, set={"max.message.bytes": "2000000"}, append={"cleanup.policy": "compact"})
        await becomes(("delete,compact", ConfigSource.TOPIC), lambda: value("cleanup.policy"))
        await admin.alter_configs(resource, subtract={"cleanup.policy": "compact"}, delete=["retention.ms"])
        await becomes(("delete", ConfigSource.TOPIC), lambda: value("cleanup.policy"))
        assert (await value("retention.ms"))[1] == ConfigSource.DEFAULT
        await admin.replace_configs(resource, {"retention.ms": "1234567"})
        await becomes(("1234567", ConfigSource.TOPIC), lambda: value("retention.ms"))
        assert await value("max.message.bytes") == default
        await admin.alter_configs(resource, set={"retention.ms": "1"}, validate_only=True)
        assert (await value("retention.ms"))[0] == "1234567"
        with pytest.raises(BrokerError) as caught:
            await admin.alter_configs(resource, set={"no.such.setting": "1"})
        assert caught.value.code == ErrorCode.INVALID_CONFIG

        broker = (await admin.describe_cluster()).brokers[0]
        resource = ConfigResource.of_broker(broker.id)
        default = await value("message.max.bytes")
        await admin.alter_configs(resource, set={"message.max.bytes": "1500000"})
        await becomes(("1500000", ConfigSource.DYNAMIC_BROKER), lambda: value("message.max.bytes"))
        await admin.alter_configs(resource, delete=["message.max.bytes"])
        await becomes(default, lambda: value("message.max.bytes"))


async def a_group_that_reads(bootstrap: str, topic: str, protocol: str) -> None:
    group = f"{topic}-readers"
    first = TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=2, replication_factor=1)
        await fill(bootstrap, topic, 10)
        async with Consumer(
            bootstrap,
            group_id=group,
            topics=[topic],
            auto_offset_reset="earliest",
            group_protocol="consumer" if protocol == "consumer" else "classic",
            enable_auto_commit=False,
            client_id="reader",
        ) as consumer:
            read = 0
            while read < 10:
                read += len(await consumer.poll(timeout_s=1))
            await consumer.commit()
            listed = {each.group_id: each for each in await admin.list_groups()}
            assert (listed[group].state, listed[group].type.lower()) == ("Stable", protocol)
            assert group in {each.group_id for each in await admin.list_groups(states=["Stable"])}
            assert group not in {each.group_id for each in await admin.list_groups(states=["Empty"])}
            described = await admin.describe_group(group)
            assert (described.group_id, described.type, described.state) == (group, protocol, "Stable")
            (member,) = described.members
            assert member.client_id == "reader"
            assert member.assignment == {first, TopicPartition(topic, 1)}
            assert described.coordinator == listed[group].coordinator
            assert (member.epoch is not None) == (protocol == "consumer")
            refused = await admin.delete_groups([group])
            assert refused.errors[group].code == ErrorCode.NON_EMPTY_GROUP
        assert (await admin.describe_group(group)).members == ()
        await offsets_of_a_group_without_members(admin, group, topic)


async def offsets_of_a_group_without_members(admin: Admin, group: str, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert (await admin.list_group_offsets(group))[first].offset == 10
    altered = await admin.alter_group_offsets(group, {first: 3, second: OffsetAndMetadata(Offset(0), "a note")})
    assert altered == {first: None, second: None}
    found = await admin.list_group_offsets(group, [first, second], stable=True)
    assert (found[first].offset, found[second].metadata) == (3, "a note")
    assert await admin.delete_group_offsets(group, [second]) == {second: None}
    assert set(await admin.list_group_offsets(group)) == {first}
    missing = f"{group}-missing"
    described = await admin.describe_groups([group, missing])
    assert list(described.errors) == [missing]
    assert described.errors[missing].code == ErrorCode.GROUP_ID_NOT_FOUND
    outcomes = await admin.delete_groups([group, missing])
    assert outcomes[group] is None
    assert outcomes.errors[missing].code == ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(BrokerError):
        await admin.describe_group(group)


async def members_are_removed(bootstrap: str, topic: str) -> None:
    group = f"{topic}-static"
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
        await fill(bootstrap, topic, 1)
        async with Consumer(
            bootstrap, group_id=group, topics=[topic], auto_offset_reset="earliest", group_instance_id="one"
        ) as consumer:
            while not await consumer.poll(timeout_s=1):
                pass
        # A static member that closes stays in its group, for when it comes back.
        (member,) = (await admin.describe_group(group)).members
        assert member.instance_id == "one"
        stranger = MemberToRemove(instance_id="nobody")
        refused = await admin.remove_members(group, [stranger])
        assert refused.errors[stranger].code == ErrorCode.UNKNOWN_MEMBER_ID
        removed = await admin.remove_members(group)
        assert list(removed.results().values()) == [None]
        assert (await admin.describe_group(group)).members == ()
        assert await admin.remove_members(group) == {}


async def the_cluster_and_where_things_are(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=2, replication_factor=1)
        await fill(bootstrap, topic, 5)
        cluster = await admin.describe_cluster()
        (broker,) = cluster.brokers
        features = await admin.describe_features()
        assert features.supported["transaction.version"].last >= features.finalized.get("transaction.version", 0)
        first = TopicPartition(topic, 0)
        dirs = await admin.describe_log_dirs([broker.id])
        assert sum(each.partition_bytes.get(first, 0) for each in dirs) > 0
        assert await admin.elect_leaders([first]) == {first: False}
        elected = await admin.elect_leaders([TopicPartition(f"{topic}-never", 0)])
        assert [error.code for error in elected.errors.values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        moved = await admin.alter_reassignments({first: [broker.id], TopicPartition(topic, 1): [broker.id, 4711]})
        assert moved[first] is None
        assert moved.errors[TopicPartition(topic, 1)].code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        last = [progress async for progress in admin.follow_reassignments([first], interval_s=0.1)][-1]
        assert (last.done, last.total, last.moving) == (1, 1, {})
        assert await admin.list_reassignments() == {}
        assert await admin.cancel_reassignments() == {}
        cancelled = await admin.cancel_reassignments([first])
        assert cancelled.errors[first].code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def transactions_are_seen_and_aborted(bootstrap: str, topic: str) -> None:
    transactional_id, first = f"{topic}-writer", TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(bootstrap, transactional_id=transactional_id) as producer:
            await producer.begin()
            await (await producer.send(topic, b"x", partition=0))
            listed = [each for each in await admin.list_transactions() if each.transactional_id == transactional_id]
            assert [each.state for each in listed] == ["Ongoing"]
            described = await admin.describe_transactions([transactional_id, "never"])
            found = described.result(transactional_id)
            assert found.partitions == {first}
            assert described.errors["never"].code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            (writer,) = await admin.describe_producers(first)
            assert (writer.producer_id, writer.transaction_start) == (found.producer_id, 0)
            assert await admin.find_hanging_transactions([first], older_than_ms=writer.last_timestamp_ms + 1) == []
            await admin.abort_transaction(first, writer)
            (writer,) = await admin.describe_producers(first)
            assert writer.transaction_start is None
            await producer.abort()
