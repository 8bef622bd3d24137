"""Consumers whose partition goes on without some of what they have read."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from scripted_broker import ScriptedBroker

from tidelog.client import Consumer, LogTruncated, OffsetOutOfRange, Producer
from tidelog.client.config import ConsumerConfig
from tidelog.client.divergence import UNKNOWN, EpochEnd, Finding, compare
from tidelog.client.fetching import PartitionBuffer
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.header import patch
from tidelog.records.record import Record
from tidelog.types import LeaderEpoch, Offset, TopicPartition
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

T0 = TopicPartition("t", 0)
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}


@pytest.mark.parametrize(
    ("end", "position", "fetch_offset", "finding"),
    [
        (EpochEnd(4, 100), 100, 100, Finding.INTACT),
        (EpochEnd(4, 120), 100, 110, Finding.INTACT),
        (EpochEnd(4, 105), 100, 110, Finding.AHEAD_LOST),
        (EpochEnd(3, 100), 100, 110, Finding.AHEAD_LOST),
        (EpochEnd(3, 99), 100, 110, Finding.TRUNCATED),
        (EpochEnd(0, 0), 1, 1, Finding.TRUNCATED),
        (EpochEnd(0, 0), 0, 1, Finding.AHEAD_LOST),
        (EpochEnd(UNKNOWN, UNKNOWN), 0, 0, Finding.TRUNCATED),
        (EpochEnd(3, UNKNOWN), 0, 0, Finding.TRUNCATED),
        (EpochEnd(UNKNOWN, 100), 0, 0, Finding.TRUNCATED),
    ],
)
def test_what_the_leader_s_answer_means(end: EpochEnd, position: int, fetch_offset: int, finding: Finding) -> None:
    assert compare(end, position=Offset(position), fetch_offset=Offset(fetch_offset)) is finding


def batch(first: int, count: int, epoch: int) -> bytes:
    built = build_batch([Record(first + at, 1000, None, b"%d of %d" % (first + at, epoch), ()) for at in range(count)])
    patch(built, 0, Offset(first), LeaderEpoch(epoch))
    return bytes(built)


@pytest.mark.parametrize(
    ("begun_at", "read_under", "now", "doubted"),
    [
        (UNKNOWN, [], 7, False),  # nothing is known of what is before
        (3, [], 3, False),  # whoever leads has written it
        (3, [], 4, True),
        (3, [], UNKNOWN, False),  # a broker that does not tell
        (3, [], 2, False),  # word of an earlier leader
        (UNKNOWN, [(3, 3)], 3, False),
        (UNKNOWN, [(3, 5)], 5, False),  # written under 3, given by the leader of 5
        (UNKNOWN, [(3, 5)], 6, True),
        (UNKNOWN, [(3, 5), (5, 5)], 6, True),
    ],
)
def test_later_leaders_are_doubted(
    begun_at: int, read_under: list[tuple[int, int]], now: int, *, doubted: bool
) -> None:
    buffer = PartitionBuffer(T0, check_crcs=True)
    buffer.seek(Offset(0), begun_at)
    for number, (written, given) in enumerate(read_under):
        buffer.add(memoryview(batch(number, 1, written)), leader_epoch=given)
        buffer.take(1)
    buffer.doubt(now)
    assert (buffer.doubted, buffer.fetchable) == (doubted, not doubted)
    buffer.trust(now)
    assert buffer.fetchable
    buffer.doubt(now)
    assert not buffer.doubted


def test_epochs_go_with_positions() -> None:
    buffer = PartitionBuffer(T0, check_crcs=True)
    buffer.seek(Offset(0))
    buffer.add(memoryview(batch(0, 2, 1) + batch(2, 2, 4)), leader_epoch=4)
    seen = []
    for _ in range(4):
        buffer.take(1)
        seen.append((buffer.position, buffer.position_epoch))
    assert seen == [(1, 1), (2, 1), (3, 4), (4, 4)]
    assert (buffer.fetch_offset, buffer.fetch_epoch) == (4, 4)
    buffer.seek(Offset(1))
    assert (buffer.position_epoch, buffer.fetch_epoch) == (UNKNOWN, UNKNOWN)


def test_what_was_fetched_ahead_can_be_dropped() -> None:
    buffer = PartitionBuffer(T0, check_crcs=True)
    buffer.seek(Offset(0))
    buffer.add(memoryview(batch(0, 2, 1) + batch(2, 2, 1)), leader_epoch=1)
    buffer.take(1)
    buffer.doubt(2)
    generation = buffer.generation
    buffer.drop_ahead(checked_epoch=2)
    assert (buffer.position, buffer.fetch_offset, buffer.fetch_epoch) == (1, 1, 1)
    assert buffer.fetchable
    assert not buffer.waiting
    assert buffer.generation > generation
    buffer.doubt(2)
    assert not buffer.doubted
    buffer.doubt(3)
    assert buffer.doubted


class Election:
    """Two brokers. When the first dies, the second leads, which has other records from `common` on."""

    def __init__(self, old: ScriptedBroker, new: ScriptedBroker, common: int) -> None:
        self.old, self.new = old, new
        new.topic_ids = old.topic_ids
        old.peers.append(new)
        for broker in (old, new):
            for number in range(6 if broker is old else common):
                broker.append(T0, batch(number, 1, 0))
        old.leaders[T0] = old.node_id
        new.leader_epoch = 1
        new.append(T0, batch(0, 9, 1))

    def hold(self) -> None:
        self.old.leaders[T0], self.old.leader_epoch = self.new.node_id, 1
        self.old.on(FetchRequest, lambda request, _before: not_leader(request))
        self.old.append(T0, batch(0, 1, 0))  # whoever waits there for more is answered


def not_leader(request: FetchRequest) -> FetchResponse:
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                PartitionData(
                    partition_index=each.partition,
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    high_watermark=-1,
                    aborted_transactions=None,
                    records=b"",
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(throttle_time_ms=0, responses=topics)


@asynccontextmanager
async def election(common: int) -> AsyncIterator[Election]:
    async with ScriptedBroker({"t": 1}, node_id=1) as old, ScriptedBroker({"t": 1}, node_id=2) as new:
        yield Election(old, new, common)


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [record.value for record in await consumer.poll(max_records=count - len(found))]
    return found


OLD = [b"%d of 0" % number for number in range(6)]
"""Of the leader at first; the application reads all, or some, of it."""


def test_a_log_that_has_everything_is_read_on() -> None:
    async def scenario() -> None:
        async with election(common=6) as vote, Consumer(vote.old.bootstrap, ConsumerConfig(**QUICK)) as consumer:
            await consumer.assign({T0: 0})
            assert await read(consumer, 6) == OLD
            vote.hold()
            assert await read(consumer, 1) == [b"0 of 1"]
            (asked,) = vote.new.requests(OffsetForLeaderEpochRequest)
            (partition,) = asked.topics[0].partitions
            assert (partition.leader_epoch, partition.current_leader_epoch) == (0, 1)
            assert consumer.position(T0) == 7

    asyncio.run(scenario())


def test_records_that_were_read_and_are_gone_are_told() -> None:
    async def scenario() -> None:
        async with election(common=3) as vote, Consumer(vote.old.bootstrap, ConsumerConfig(**QUICK)) as consumer:
            await consumer.assign({T0: 0})
            assert await read(consumer, 6) == OLD
            vote.hold()
            with pytest.raises(LogTruncated, match="from offset 3 to 6 of t-0 that were read") as caught:
                await read(consumer, 1)
            error = caught.value
            assert isinstance(error, OffsetOutOfRange)
            assert (error.partition, error.offset, error.safe_offset) == (T0, 6, 3)
            with pytest.raises(LogTruncated):
                await consumer.poll(0)
            assert not vote.new.requests(FetchRequest), "nothing is read before the application has said where"
            await consumer.seek(T0, error.safe_offset or 0)
            assert await read(consumer, 2) == [b"0 of 1", b"1 of 1"]

    asyncio.run(scenario())


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_whoever_may_be_reset_goes_on_where_the_logs_part(reset: Any) -> None:
    async def scenario() -> None:
        config = ConsumerConfig(**QUICK, auto_offset_reset=reset)
        async with election(common=3) as vote, Consumer(vote.old.bootstrap, config) as consumer:
            await consumer.assign({T0: 0})
            assert await read(consumer, 6) == OLD
            vote.hold()
            assert await read(consumer, 9) == [b"%d of 1" % number for number in range(9)]
            assert consumer.position(T0) == 12

    asyncio.run(scenario())


@pytest.mark.parametrize(("reset", "position"), [("earliest", 0), ("latest", 9)])
def test_where_nothing_is_left_the_reset_says_where_to_go(reset: Any, position: int) -> None:
    async def scenario() -> None:
        config = ConsumerConfig(**QUICK, auto_offset_reset=reset)
        async with election(common=0) as vote, Consumer(vote.old.bootstrap, config) as consumer:
            await consumer.assign({T0: 0})
            assert await read(consumer, 6) == OLD
            vote.hold()
            reading = asyncio.create_task(read(consumer, 1))
            while not vote.new.requests(FetchRequest):  # noqa: ASYNC110 - there is nobody to tell us
                await asyncio.sleep(0)
            assert vote.new.requests(FetchRequest)[0].topics[0].partitions[0].fetch_offset == position
            vote.new.append(T0, batch(0, 1, 1))
            await reading

    asyncio.run(scenario())


def test_what_was_only_fetched_ahead_is_fetched_again() -> None:
    async def scenario() -> None:
        async with election(common=3) as vote, Consumer(vote.old.bootstrap, ConsumerConfig(**QUICK)) as consumer:
            await consumer.assign({T0: 0})
            assert await read(consumer, 2) == OLD[:2]
            vote.hold()
            while not vote.new.requests(FetchRequest):  # noqa: ASYNC110 - there is nobody to tell us
                await asyncio.sleep(0)
            assert await read(consumer, 3) == [OLD[2], b"0 of 1", b"1 of 1"]

    asyncio.run(scenario())


def test_brokers_that_cannot_be_asked_are_believed() -> None:
    async def scenario() -> None:
        async with election(common=3) as vote, Consumer(vote.old.bootstrap, ConsumerConfig(**QUICK)) as consumer:
            vote.new.offered[OffsetForLeaderEpochRequest.API] = (0, 2)
            await consumer.assign({T0: 0})
            assert await read(consumer, 6) == OLD
            vote.hold()
            assert await read(consumer, 1) == [b"3 of 1"]

    asyncio.run(scenario())


def refused(request: OffsetForLeaderEpochRequest, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[EpochEndOffset(error_code=code, partition=each.partition) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, None])
def test_a_leader_that_does_not_answer_yet_is_asked_again(code: ErrorCode | None) -> None:
    async def scenario() -> None:
        async with election(common=6) as vote, Consumer(vote.old.bootstrap, ConsumerConfig(**QUICK)) as consumer:

            def react(request: OffsetForLeaderEpochRequest, before: int) -> OffsetForLeaderEpochResponse | None:
                if before > 1:
                    return None
                if code is None:
                    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[])
                return refused(request, code)

            vote.new.on(OffsetForLeaderEpochRequest, react)
            await consumer.assign({T0: 0})
            assert await read(consumer, 6) == OLD
            vote.hold()
            assert await read(consumer, 1) == [b"0 of 1"]
            assert len(vote.new.requests(OffsetForLeaderEpochRequest)) == 3

    asyncio.run(scenario())


def test_missing_rights_are_raised() -> None:
    async def scenario() -> None:
        async with election(common=6) as vote, Consumer(vote.old.bootstrap, ConsumerConfig(**QUICK)) as consumer:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            vote.new.on(OffsetForLeaderEpochRequest, lambda request, _before: refused(request, code))
            await consumer.assign({T0: 0})
            assert await read(consumer, 6) == OLD
            vote.hold()
            with pytest.raises(BrokerError) as caught:
                await read(consumer, 1)
            assert caught.value.code is code

    asyncio.run(scenario())


def test_commits_tell_the_epoch(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(bootstrap) as producer:
            for number in range(5):
                await producer.send(topic, b"%d" % number)
        settings: dict[str, Any] = {"group_id": f"group-{topic}", "auto_offset_reset": "earliest"}
        async with Consumer(bootstrap, topics=[topic], enable_auto_commit=False, **settings) as consumer:
            assert len(await read(consumer, 3)) == 3
            await consumer.commit()
            (commit,) = (await consumer.committed()).values()
            assert commit is not None
            assert (commit.offset, commit.leader_epoch) == (3, 0)
        async with Consumer(bootstrap, topics=[topic], **settings) as consumer:
            assert await read(consumer, 2) == [b"3", b"4"]

    asyncio.run(scenario())
