"""The consumer against a broker that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from scripted_broker import HANG_UP, Misdeed, ScriptedBroker

from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer import Consumer
from tidelog.client.errors import Closed, OffsetOutOfRange
from tidelog.client.offsets import OffsetSpec
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.record import Record
from tidelog.types import Offset, TopicPartition
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from tidelog.wire.declare import Message

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
CONFIG = ConsumerConfig(**QUICK)
EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()


def fill(broker: ScriptedBroker, partition: TopicPartition, count: int, batches: int = 1) -> None:
    for _ in range(batches):
        first = broker.ends[partition]
        records = [Record(at, 1000 + at, None, b"%d" % (first + at), ()) for at in range(count)]
        broker.append(partition, bytes(build_batch(records)))


async def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next so many records."""
    found: list[tuple[int, int]] = []
    async for record in consumer:
        found.append((record.partition, record.offset))
        if len(found) == count:
            break
    return found


def answer(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                PartitionData(
                    partition_index=asked.partition,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=None,
                    records=b"",
                )
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(throttle_time_ms=0, responses=topics)


def test_everything_is_read_in_order_and_then_awaited() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 3}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            for partition in (T0, T1, T2):
                fill(broker, partition, 40, batches=5)
            await consumer.assign_topics(["t"], EARLIEST)
            assert consumer.assignment == {T0, T1, T2}
            found = await read(consumer, 600)
            for index in range(3):
                assert [offset for partition, offset in found if partition == index] == list(range(200))
            assert [consumer.position(partition) for partition in (T0, T1, T2)] == [200, 200, 200]
            more = asyncio.create_task(read(consumer, 1))
            await asyncio.sleep(0)
            assert not more.done()
            fill(broker, T1, 1)
            assert await more == [(1, 200)]
            assert consumer.high_watermark(T1) == 201

    asyncio.run(scenario())


def test_each_partition_begins_where_it_is_told() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 3}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            for partition in (T0, T1, T2):
                fill(broker, partition, 10)
            await consumer.assign({T0: EARLIEST, T1: LATEST, T2: 7})
            assert [consumer.position(partition) for partition in (T0, T1, T2)] == [0, 10, 7]
            found = await read(consumer, 13)
            assert sorted(found) == [(0, offset) for offset in range(10)] + [(2, 7), (2, 8), (2, 9)]

    asyncio.run(scenario())


def test_a_time_after_the_last_record_means_the_end() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            fill(broker, T0, 5)
            await consumer.assign({T0: OffsetSpec.at_timestamp(99_999)})
            assert consumer.position(T0) == 5
            asked = [request.topics[0].partitions[0].timestamp for request in broker.requests(ListOffsetsRequest)]
            assert asked == [99_999, -1]

    asyncio.run(scenario())


def test_seeking_goes_elsewhere_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            fill(broker, T0, 50)
            await consumer.assign({T0: 0})
            assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
            assert consumer.position(T0) == 3
            await consumer.seek(T0, 40)
            assert consumer.position(T0) == 40
            assert await read(consumer, 2) == [(0, 40), (0, 41)]
            await consumer.seek(T0, EARLIEST)
            assert await read(consumer, 1) == [(0, 0)]

    asyncio.run(scenario())


def test_polling_gives_up_after_its_time_and_never_more_than_asked() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            await consumer.assign({T0: 0})
            assert await consumer.poll(0.01) == []
            fill(broker, T0, 10)
            assert [record.offset for record in await consumer.poll(max_records=4)] == [0, 1, 2, 3]
            assert consumer.position(T0) == 4
            assert len(await consumer.poll()) == 6

    asyncio.run(scenario())


def test_polling_takes_over_what_iteration_left() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            fill(broker, T0, 10)
            await consumer.assign({T0: 0})
            await read(consumer, 3)
            assert [record.offset for record in await consumer.poll()] == [3, 4, 5, 6, 7, 8, 9]

    asyncio.run(scenario())


def test_no_partition_keeps_the_others_waiting() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 2}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            fill(broker, T0, 10, batches=100)
            fill(broker, T1, 10, batches=100)
            await consumer.assign_topics(["t"], EARLIEST)
            polled = [(await consumer.poll(max_records=10))[0].partition for _ in range(20)]
            assert abs(polled.count(0) - polled.count(1)) <= 2

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, None])
def test_it_goes_on_after_a_passing_error(code: ErrorCode | None, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            fill(broker, T0, 5)
            await consumer.assign({T0: 0})

            def fail_at_first(request: FetchRequest, before: int) -> Message | Misdeed | None:
                if before >= 3:
                    return None
                return HANG_UP if code is None else answer(request, code)

            asked = len(broker.requests(MetadataRequest))
            broker.on(FetchRequest, fail_at_first)
            assert len(await read(consumer, 5)) == 5
            assert len(broker.requests(MetadataRequest)) > asked, "the leader may have moved"

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert caplog.messages[0].startswith("t-0: fetching failed, trying again:")


def test_it_follows_the_leader_to_another_broker() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}, node_id=1) as old, ScriptedBroker({"t": 1}, node_id=2) as new:
            new.topic_ids = old.topic_ids
            old.peers.append(new)
            fill(old, T0, 3)
            fill(new, T0, 6)
            async with Consumer(old.bootstrap, CONFIG) as consumer:
                await consumer.assign({T0: 0})
                assert len(await read(consumer, 3)) == 3
                old.leaders[T0], old.leader_epoch = 2, 1
                old.on(FetchRequest, lambda request, _before: answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                assert await read(consumer, 3) == [(0, 3), (0, 4), (0, 5)]
            assert new.requests(FetchRequest)[-1].topics[0].partitions[0].current_leader_epoch == 1

    asyncio.run(scenario())


def test_an_offset_that_is_gone_is_an_error_unless_told_where_to_go() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            fill(broker, T0, 5)
            await consumer.assign({T0: 99})
            with pytest.raises(OffsetOutOfRange, match="offset 99 is not in t-0") as caught:
                await consumer.poll()
            assert (caught.value.partition, caught.value.offset) == (T0, 99)
            await consumer.seek(T0, 2)
            assert await read(consumer, 3) == [(0, 2), (0, 3), (0, 4)]

    asyncio.run(scenario())


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("latest", 5)])
def test_an_offset_that_is_gone_can_be_passed_over(policy: Any, expected: int) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            fill(broker, T0, 5)
            config = ConsumerConfig(**QUICK, auto_offset_reset=policy)
            async with Consumer(broker.bootstrap, config) as consumer:
                await consumer.assign({T0: 99})
                polling = asyncio.create_task(consumer.poll())
                while consumer.position(T0) == 99:  # noqa: ASYNC110 - there is nobody to tell us
                    await asyncio.sleep(0)
                if policy == "latest":
                    fill(broker, T0, 1)
                assert (await polling)[0].offset == expected

    asyncio.run(scenario())


def test_damaged_records_are_raised_and_can_be_passed_over() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            fill(broker, T0, 2, batches=3)
            damaged = bytearray(broker.logs[T0][1])
            damaged[-1] ^= 1
            broker.logs[T0][1] = bytes(damaged)
            await consumer.assign({T0: 0})
            assert len(await consumer.poll(max_records=2)) == 2
            with pytest.raises(BrokerError, match="seek past offset 3"):
                await consumer.poll()
            await consumer.seek(T0, 4)
            assert await read(consumer, 2) == [(0, 4), (0, 5)]

    asyncio.run(scenario())


def test_what_cannot_get_better_is_raised() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            broker.on(FetchRequest, lambda request, _before: answer(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            await consumer.assign({T0: 0})
            with pytest.raises(BrokerError) as caught:
                await consumer.poll()
            assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    asyncio.run(scenario())


def test_memory_is_bounded_while_nobody_reads() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 2}) as broker, Consumer(broker.bootstrap, CONFIG) as consumer:
            broker.batches_per_fetch = 1
            fill(broker, T0, 10, batches=20)
            left_out = asyncio.Event()

            def watch(request: FetchRequest, _before: int) -> None:
                if [each.partition for each in request.topics[0].partitions] == [1]:
                    left_out.set()

            broker.on(FetchRequest, watch)
            await consumer.assign({T0: 0, T1: 0})
            await left_out.wait()
            asked = [each.fetch_offset for each in fetched(broker, 0)]
            assert asked == [0, 10], "two answers ahead, and no more"
            assert len(await read(consumer, 200)) == 200

    asyncio.run(scenario())


def fetched(broker: ScriptedBroker, partition: int) -> list[FetchPartition]:
    topics = [topic for request in broker.requests(FetchRequest) for topic in request.topics]
    return [each for topic in topics for each in topic.partitions if each.partition == partition]


@pytest.mark.parametrize("versions", [(4, 4), (4, 11), (4, 12), (13, 18)])
def test_every_fetch_version_works(versions: tuple[int, int]) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.offered[FetchRequest.API] = versions
            fill(broker, T0, 3)
            async with Consumer(broker.bootstrap, CONFIG) as consumer:
                await consumer.assign({T0: 0})
                assert len(await read(consumer, 3)) == 3
            assert broker.versions[FetchRequest][0] == versions[1]

    asyncio.run(scenario())


def test_cancelling_leaves_neither_task_nor_socket() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            reached = asyncio.Event()
            broker.on(FetchRequest, lambda _request, _before: reached.set())

            async def work() -> None:
                async with Consumer(broker.bootstrap, CONFIG) as consumer:
                    await consumer.assign({T0: 0})
                    async for _ in consumer:
                        pass

            task = asyncio.create_task(work())
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await broker.all_gone()
            assert [each for each in asyncio.all_tasks() if each.get_name().startswith("tidelog")] == []

    asyncio.run(scenario())


def test_a_closed_consumer_says_so() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            async with Consumer(broker.bootstrap, CONFIG) as consumer:
                await consumer.assign({T0: 0})
            with pytest.raises(Closed):
                await consumer.poll()
            with pytest.raises(Closed):
                await consumer.assign({T0: Offset(0)})

    asyncio.run(scenario())


def test_bad_settings_are_explained() -> None:
    with pytest.raises(ValueError, match="auto_offset_reset is earliest, latest or none"):
        ConsumerConfig(auto_offset_reset="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fetch_max_bytes must be positive"):
        ConsumerConfig(fetch_max_bytes=0)
