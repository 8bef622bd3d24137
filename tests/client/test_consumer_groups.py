"""The consumer as a member of groups, against a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.client import (
    Admin,
    BrokerError,
    ClientError,
    CommitFailed,
    Consumer,
    ConsumerConfig,
    ErrorCode,
    NoOffset,
    OffsetAndMetadata,
    OffsetSpec,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from tidelog.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_fixtures import GroupBroker, StartGroupBroker

pytest_plugins = ["group_fixtures"]

PROTOCOLS = ["classic", "consumer"]
WITHIN_S = 60.0
"""For hanging, not for slowness."""


@pytest.fixture
def at(group_broker: GroupBroker) -> str:
    return group_broker.bootstrap


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def settings(group: str, protocol: str = "classic", **more: Any) -> ConsumerConfig:
    chosen: dict[str, Any] = {
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
        "fetch_max_wait_ms": 100,
        "enable_auto_commit": False,
    }
    return ConsumerConfig(**(chosen | more))


class Diary(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.entries.append(("assigned", partitions))

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.entries.append(("revoked", partitions))

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.entries.append(("lost", partitions))


async def create(at: str, topic: str, partitions: int, records_each: int = 0) -> set[TopicPartition]:
    async with Admin(at) as admin:
        await admin.create_topic(topic, partitions=partitions)
    if records_each:
        await fill(at, topic, partitions, records_each)
    return {TopicPartition(topic, number) for number in range(partitions)}


async def fill(at: str, topic: str, partitions: int, records_each: int) -> None:
    async with Producer(at) as producer:
        for number in range(records_each):
            for partition in range(partitions):
                await producer.send(topic, b"%d" % number, partition=partition)


async def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += [(record.partition, record.offset) for record in await consumer.poll(1)]
    return found


async def polling(consumers: list[Consumer], until: Callable[[], bool]) -> None:
    """All of them ask for records until something holds."""
    async with asyncio.timeout(WITHIN_S):
        while not until():
            await asyncio.gather(*(consumer.poll(0.05) for consumer in consumers))


def shared(consumers: list[Consumer], wanted: set[TopicPartition]) -> Callable[[], bool]:
    """Every partition has one reader, and every reader has some."""

    def settled() -> bool:
        owned = [partition for consumer in consumers for partition in consumer.assignment]
        return sorted(owned) == sorted(wanted) and all(consumer.assignment for consumer in consumers)

    return settled


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_committed(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 2, 10)
        async with Consumer(at, settings(group, protocol), topics=[topic]) as consumer:
            found = await read(consumer, 20)
            assert sorted(found) == [(partition, offset) for partition in range(2) for offset in range(10)]
            assert consumer.assignment == wanted
            await consumer.commit()
            committed = await consumer.committed()
            assert {partition: at and at.offset for partition, at in committed.items()} == dict.fromkeys(wanted, 10)
        await fill(at, topic, 2, 1)
        async with Consumer(at, settings(group, protocol), topics=[topic]) as consumer:
            assert sorted(await read(consumer, 2)) == [(0, 10), (1, 10)]

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_inherit(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 4)
        async with Consumer(at, settings(group, protocol), topics=[topic]) as first:
            await polling([first], shared([first], wanted))
            async with Consumer(at, settings(group, protocol), topics=[topic]) as second:
                await polling([first, second], shared([first, second], wanted))
                assert len(first.assignment) == len(second.assignment) == 2
            await polling([first], shared([first], wanted))

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_positions_are_committed_by_themselves(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 2, 5)
        config = settings(group, protocol, enable_auto_commit=True, auto_commit_interval_ms=50)
        async with Consumer(at, config, topics=[topic]) as consumer:
            await read(consumer, 10)

            async def reached() -> bool:
                await consumer.poll(0.01)
                return all(
                    found is not None and found.offset == 5 for found in (await consumer.committed(wanted)).values()
                )

            async with asyncio.timeout(WITHIN_S):
                while not await reached():
                    pass

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_commits_what_was_dealt_with(at: str, topic: str, group: str, protocol: str) -> None:
    config = settings(group, protocol, enable_auto_commit=True, auto_commit_interval_ms=3_600_000)

    async def fail_at(offset: int) -> None:
        async with Consumer(at, config, topics=[topic]) as consumer:
            async for record in consumer:
                if record.offset == offset:
                    raise LookupError(record.offset)

    async def scenario() -> None:
        wanted = await create(at, topic, 1, 10)
        with pytest.raises(LookupError):
            await fail_at(4)
        assert await offsets(at, group, wanted) == {TopicPartition(topic, 0): 4}, "the failed record is not done"
        with pytest.raises(LookupError):
            await fail_at(7)
        async with Consumer(at, config, topics=[topic]) as consumer:
            async for record in consumer:
                assert record.offset == 7
                break
        assert await offsets(at, group, wanted) == {TopicPartition(topic, 0): 8}

    asyncio.run(scenario())


async def offsets(at: str, group: str, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    async with Consumer(at, group_id=group) as asking:
        found = await asking.committed(partitions)
    return {partition: commit.offset for partition, commit in found.items() if commit is not None}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_listeners_hear_of_everything_in_order(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 4)
        diary, other = Diary(), Diary()
        async with Consumer(at, settings(group, protocol), topics=[topic], listener=diary) as first:
            await polling([first], shared([first], wanted))
            assert diary.entries == [("assigned", frozenset(wanted))]
            async with Consumer(at, settings(group, protocol), topics=[topic], listener=other) as second:
                await polling([first, second], shared([first, second], wanted))
                owned = second.assignment
            assert other.entries[-1] == ("revoked", owned), "closing gives up"
            await polling([first], shared([first], wanted))
        held: set[TopicPartition] = set()
        for what, partitions in diary.entries:
            if what == "assigned":
                assert not held & partitions
                held |= partitions
            else:
                assert what == "revoked"
                assert partitions <= held
                held -= partitions
        assert not held

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_positions_may_be_kept_elsewhere(at: str, topic: str, group: str, protocol: str) -> None:
    class Elsewhere(RebalanceListener):
        consumer: Consumer

        async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            for partition in partitions:
                await self.consumer.seek(partition, 7)

    async def scenario() -> None:
        await create(at, topic, 2, 10)
        listener = Elsewhere()
        async with Consumer(at, settings(group, protocol), topics=[topic], listener=listener) as consumer:
            listener.consumer = consumer
            found = await read(consumer, 6)
            assert sorted(found) == [(partition, offset) for partition in range(2) for offset in (7, 8, 9)]

    asyncio.run(scenario())


def test_what_a_listener_raises_is_raised_where_records_are_asked_for(at: str, topic: str, group: str) -> None:
    class Clumsy(RebalanceListener):
        def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            raise ArithmeticError(len(partitions))

    async def scenario() -> None:
        wanted = await create(at, topic, 2, 1)
        async with Consumer(at, settings(group), topics=[topic], listener=Clumsy()) as consumer:
            with pytest.raises(ArithmeticError):
                await consumer.poll()
            assert len(await read(consumer, 2)) == 2
            assert consumer.assignment == wanted

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_takes_in_topics_as_they_come(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        first = await create(at, f"{topic}-one", 2)
        await create(at, f"x{topic}-other", 2)
        config = settings(group, protocol, metadata_max_age_ms=200)
        async with Consumer(at, config, pattern=rf"{topic}-.*") as consumer:
            await polling([consumer], shared([consumer], first))
            second = await create(at, f"{topic}-two", 1)
            await polling([consumer], shared([consumer], first | second))

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_may_come_after_its_subscribers_and_grow(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        config = settings(group, protocol, allow_auto_create_topics=False, metadata_max_age_ms=200)
        async with Consumer(at, config, topics=[topic]) as consumer:
            assert await consumer.poll(0.01) == []
            wanted = await create(at, topic, 1)
            await polling([consumer], shared([consumer], wanted))
            async with Admin(at) as admin:
                await admin.add_partitions(topic, 3)
            await polling([consumer], shared([consumer], {TopicPartition(topic, number) for number in range(3)}))

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_subscription_replaces_the_first(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        first, second = await create(at, f"{topic}-1", 2), await create(at, f"{topic}-2", 2)
        diary = Diary()
        async with Consumer(at, settings(group, protocol), topics=[f"{topic}-1"]) as consumer:
            await polling([consumer], shared([consumer], first))
            await consumer.subscribe([f"{topic}-2"], listener=diary)
            assert consumer.subscription == {f"{topic}-2"}
            await polling([consumer], shared([consumer], second))
            assert diary.entries == [("revoked", frozenset(first)), ("assigned", frozenset(second))]
            with pytest.raises(ClientError, match="unsubscribe"):
                await consumer.assign(dict.fromkeys(first, 0))
            await consumer.unsubscribe()
            assert consumer.assignment == frozenset()
            await consumer.assign(dict.fromkeys(first, 0))
            assert consumer.assignment == first

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_does_not_come_for_records_loses_its_partitions(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 2, 1)
        diary = Diary()
        config = settings(group, protocol, max_poll_interval_ms=700)
        async with Consumer(at, config, topics=[topic], listener=diary) as slow:
            await read(slow, 2)
            async with Consumer(at, settings(group, protocol), topics=[topic]) as quick:
                await polling([quick], shared([quick], wanted))
                with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
                    await slow.commit()
                await polling([slow, quick], shared([slow, quick], wanted))
        assert diary.entries[1] == ("lost", frozenset(wanted))
        assert diary.entries[2][0] == "assigned"

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_was_asleep_cannot_commit_although_nobody_else_is_there(
    at: str, topic: str, group: str, protocol: str
) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 1, 5)
        async with Consumer(at, settings(group, protocol, max_poll_interval_ms=300), topics=[topic]) as slow:
            await read(slow, 5)
            async with asyncio.timeout(WITHIN_S):
                while slow.group_metadata().generation_id > 0:
                    await offsets(at, group, wanted)
            with pytest.raises(CommitFailed, match="not in it"):
                await slow.commit()
            assert await offsets(at, group, wanted) == {}
            assert len(await read(slow, 5)) == 5
            await slow.commit()

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_instance_comes_back_to_its_partitions(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 4)
        diary = Diary()
        async with Consumer(at, settings(group, protocol), topics=[topic], listener=diary) as other:
            async with Consumer(at, settings(group, protocol, group_instance_id="one"), topics=[topic]) as first:
                await polling([first, other], shared([first, other], wanted))
                had = first.assignment
            told = len(diary.entries)
            async with Consumer(at, settings(group, protocol, group_instance_id="one"), topics=[topic]) as again:
                await polling([again, other], shared([again, other], wanted))
                assert again.assignment == had
            assert len(diary.entries) == told, "nobody else notices"

    asyncio.run(scenario())


def test_of_two_instances_of_one_name_the_first_is_thrown_out(at: str, topic: str, group: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 2)
        config = settings(group, group_instance_id="one")
        async with Consumer(at, config, topics=[topic]) as first:
            await polling([first], shared([first], wanted))
            async with Consumer(at, config, topics=[topic]) as second:
                await polling([second], shared([second], wanted))
                with pytest.raises(BrokerError) as caught:
                    await polling([first], lambda: False)
                assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_can_be_named_and_noted(at: str, topic: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 2, 5)
        zero, one = sorted(wanted)
        async with Consumer(at, settings(group, protocol), topics=[topic]) as consumer:
            assert set((await consumer.committed(wanted)).values()) == {None}
            await read(consumer, 10)
            await consumer.commit({zero: 3, one: OffsetAndMetadata(Offset(2), "so far")})
            found = await consumer.committed(wanted)
            assert found == {zero: OffsetAndMetadata(Offset(3)), one: OffsetAndMetadata(Offset(2), "so far")}
            await consumer.commit_soon()
            assert await offsets(at, group, wanted) == {zero: 5, one: 5}
            metadata = consumer.group_metadata()
            assert metadata.group_id == group
            assert metadata.generation_id > 0
            assert metadata.member_id

    asyncio.run(scenario())


def test_partitions_chosen_by_hand_may_begin_at_the_groups_commits(at: str, topic: str, group: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 2, 5)
        zero, one = sorted(wanted)
        async with Consumer(at, settings(group)) as consumer:
            await consumer.assign({zero: None, one: 4})
            await consumer.commit({zero: 3})
            await consumer.assign({zero: None, one: 4})
            assert sorted(await read(consumer, 3)) == [(0, 3), (0, 4), (1, 4)]
            await consumer.commit()
        assert await offsets(at, group, wanted) == {zero: 5, one: 5}

    asyncio.run(scenario())


def test_without_a_commit_or_a_rule_where_to_begin_it_says_so(at: str, topic: str, group: str) -> None:
    async def scenario() -> None:
        await create(at, topic, 1, 1)
        async with Consumer(at, settings(group, auto_offset_reset="none"), topics=[topic]) as consumer:
            with pytest.raises(NoOffset, match=f"{topic}-0"):
                await polling([consumer], lambda: False)

    asyncio.run(scenario())


def test_without_a_group_there_is_nothing_to_commit(at: str, topic: str) -> None:
    async def scenario() -> None:
        async with Consumer(at) as consumer:
            with pytest.raises(ClientError, match="group_id"):
                await consumer.commit()
            with pytest.raises(ClientError, match="group_id"):
                await consumer.subscribe([topic])

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_outlive_their_coordinator(
    own_group_broker: StartGroupBroker, topic: str, group: str, protocol: str
) -> None:
    broker = own_group_broker()

    async def scenario() -> None:
        at = broker.bootstrap
        wanted = await create(at, topic, 2, 5)
        diary = Diary()
        async with Consumer(at, settings(group, protocol), topics=[topic], listener=diary) as consumer:
            await read(consumer, 10)
            await asyncio.to_thread(broker.stop)
            committing = asyncio.create_task(consumer.commit())
            await asyncio.to_thread(broker.start)
            await committing
            await fill(at, topic, 2, 1)
            assert sorted(await read(consumer, 2)) == [(0, 5), (1, 5)]
            await consumer.commit()
            assert await offsets(at, group, wanted) == dict.fromkeys(wanted, 6)
            assert [what for what, _ in diary.entries] == ["assigned"]

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_listeners_may_commit_what_is_given_up(at: str, topic: str, group: str, protocol: str) -> None:
    class Careful(RebalanceListener):
        consumer: Consumer

        async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            positions = self.consumer.positions()
            await self.consumer.commit({partition: positions[partition] for partition in partitions})

    async def scenario() -> None:
        wanted = await create(at, topic, 2, 5)
        listeners = [Careful(), Careful()]
        first, second = (Consumer(at, settings(group, protocol), topics=[topic], listener=each) for each in listeners)
        listeners[0].consumer, listeners[1].consumer = first, second
        async with first:
            await read(first, 10)
            async with second:
                await polling([first, second], shared([first, second], wanted))
                given = await offsets(at, group, wanted)
                assert given.items() >= dict.fromkeys(second.assignment, 5).items()
                await fill(at, topic, 2, 1)
                await polling([first, second], lambda: set((first.positions() | second.positions()).values()) == {6})
        assert await offsets(at, group, wanted) == dict.fromkeys(wanted, 6), "closing gives up, too"

    asyncio.run(scenario())


def test_a_commit_during_the_iteration_is_of_what_was_given_out(at: str, topic: str, group: str) -> None:
    async def scenario() -> None:
        wanted = await create(at, topic, 1, 5)
        async with Consumer(at, settings(group), topics=[topic]) as consumer:
            async for record in consumer:
                await consumer.commit()
                assert await offsets(at, group, wanted) == {TopicPartition(topic, 0): record.offset + 1}
                if record.offset == 4:
                    break

    asyncio.run(scenario())


def test_a_protocol_that_the_broker_does_not_offer_is_said_so(
    own_group_broker: StartGroupBroker, topic: str, group: str
) -> None:
    at = own_group_broker({"group.coordinator.rebalance.protocols": "classic"}).bootstrap

    async def scenario() -> None:
        async with Consumer(at, settings(group, "consumer"), topics=[topic]) as consumer:
            for _ in range(2):
                with pytest.raises((BrokerError, ClientError), match=r"(?i)consumer"):
                    await polling([consumer], lambda: False)

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_can_never_be_is_said_so(at: str, group: str, protocol: str) -> None:
    async def scenario() -> None:
        async with Consumer(at, settings(group, protocol), topics=["no/topic"]) as consumer:
            with pytest.raises(BrokerError) as caught:
                await polling([consumer], lambda: False)
            assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_committed_transactions_are_read_if_wished(at: str, topic: str, group: str, protocol: str) -> None:
    from confluent_kafka import Producer as LibrdkafkaProducer

    def write() -> None:
        producer = LibrdkafkaProducer({"bootstrap.servers": at, "transactional.id": topic, "log_level": 3})
        producer.init_transactions(WITHIN_S)
        for number in range(6):
            producer.begin_transaction()
            for record in range(3):
                producer.produce(topic, f"{number} {record}", partition=0)
            producer.flush(WITHIN_S)
            if number % 2:
                producer.abort_transaction(WITHIN_S)
            else:
                producer.commit_transaction(WITHIN_S)

    async def scenario() -> None:
        zero = TopicPartition(topic, 0)
        await create(at, topic, 1)
        await asyncio.to_thread(write)
        config = settings(group, protocol, isolation_level="read_committed")
        async with Consumer(at, config, topics=[topic]) as consumer:
            async with asyncio.timeout(WITHIN_S):
                values = [(await anext(aiter(consumer))).value for _ in range(9)]
                assert values == [b"%d %d" % (number, record) for number in (0, 2, 4) for record in range(3)]
                (end,) = (await consumer.end_offsets([zero])).values()
                while consumer.position(zero) < end:
                    assert await consumer.poll(0.05) == []

    asyncio.run(scenario())


def open_sockets() -> set[str]:
    """By inode, as the system knows them."""
    found: set[str] = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(path.readlink())
            if target.startswith("socket:"):
                found.add(target)
    return found


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cancelling_at_any_point_leaves_neither_task_nor_socket(
    at: str, topic: str, group: str, protocol: str, again: bool
) -> None:
    async def work() -> None:
        config = settings(group, protocol, enable_auto_commit=True, auto_commit_interval_ms=5)
        async with Consumer(at, config, topics=[topic], listener=Diary()) as consumer:
            zero = TopicPartition(topic, 0)
            async for record in consumer:
                if record.offset == 5 and record.partition == 0:
                    await consumer.commit()
                    await consumer.seek(zero, OffsetSpec.earliest())
                    await consumer.seek_to_beginning()
                    await consumer.poll(0.01)

    async def scenario() -> None:
        await create(at, topic, 2, 10)
        for ticks in (0, 1, 2, 4, 7, 12, 20, 35, 60, 100, 200, 400, 800, 1600, 3200, 8000, 20_000):
            before = open_sockets()
            task = asyncio.create_task(work(), name="work")
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            if again:
                for _ in range(ticks % 5):
                    await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            left = [each for each in asyncio.all_tasks() if each.get_name().startswith("tidelog")]
            assert not left, f"after {ticks} ticks"
            assert open_sockets() <= before, f"after {ticks} ticks"

    asyncio.run(scenario())
