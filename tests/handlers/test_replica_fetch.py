"""Fetch by followers, and by consumers from followers: who may read what, and what counts."""

from __future__ import annotations

import asyncio

import pytest
from handler_cases import Around, around
from replica_cases import NOW_MS, ORDERS, ORDERS_ID, A, B, C, role

from tidelog.errors import ErrorCode
from tidelog.handlers.fetch import HANDLER
from tidelog.handlers.handler import Waiting
from tidelog.records.build import build_batch
from tidelog.records.record import Record
from tidelog.storage.fs import FileSlice
from tidelog.types import LeaderEpoch
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState

RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


def request(
    offset: int = 0,
    *,
    replica: int = B,
    epoch: int = 1,
    last_epoch: int = -1,
    wait_ms: int = 0,
    broker_epoch: int = 7,
    rack: str = "",
) -> FetchRequest:
    part = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch if replica >= 0 else -1),
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic_id=ORDERS_ID, partitions=[part])],
        rack_id=rack,
    )


async def fetch(broker: Around, asked: FetchRequest, peer: int | None = B) -> PartitionData:
    reply = await broker.answer(HANDLER, asked, peer)
    assert reply.error_code == 0
    data = reply.responses[0].partitions[0]
    assert isinstance(data, PartitionData)
    return data


@pytest.mark.parametrize("peer", [None, C], ids=["a client", "another broker"])
def test_nobody_can_pretend_to_be_a_follower(peer: int | None) -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        broker.node.append(b"x")
        assert await broker.refusal(HANDLER, request(1), peer) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert broker.node.partition().high_watermark == 0

    around(story)


def test_in_old_versions_neither() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        asked = FetchRequest(replica_id=B, max_wait_ms=0, min_bytes=1, topics=[])
        answer = broker.ask(HANDLER, asked, 11, None)
        assert getattr(answer, "error_code", None) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    around(story)


def test_a_follower_reads_to_the_end_and_its_next_fetch_makes_that_safe() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        broker.node.append(b"x")
        data = await fetch(broker, request(0))
        assert isinstance(data.records, FileSlice)
        assert data.records.size > 0
        assert data.high_watermark == 0
        data = await fetch(broker, request(1, last_epoch=1))
        assert data.high_watermark == 1
        assert broker.node.partition().follower(B).broker_epoch == 7

    around(story)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request(epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (request(epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (request(epoch=-1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (request(5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (request(broker_epoch=3), ErrorCode.STALE_BROKER_EPOCH),
    ],
    ids=["old reign", "reign to come", "says none", "beyond the end", "an earlier life"],
)
def test_fetches_that_do_not_count(asked: FetchRequest, code: ErrorCode) -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        await fetch(broker, request(0, broker_epoch=4))
        broker.node.append(b"x")
        assert (await fetch(broker, asked)).error_code == code
        assert broker.node.partition().follower(B).end_offset == 0

    around(story)


def test_out_of_range_tells_where_the_log_begins() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A,)))
        for _ in range(3):
            broker.node.append(b"x")
        broker.node.partition().delete_records(2)
        data = await fetch(broker, request(0))
        assert (data.error_code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)

    around(story)


def test_a_broker_without_a_replica_is_refused() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A,), replicas=(A, C)))
        assert (await fetch(broker, request(0))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    around(story)


def test_a_log_that_diverged_is_told_where_and_counts_for_nothing() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        broker.node.append(b"x", b"y")
        broker.node.take(role(A, 3, (A, B)))
        broker.node.append(b"z")
        data = await fetch(broker, request(3, epoch=3, last_epoch=2))
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (1, 2)
        assert data.records == b""
        assert broker.node.partition().follower(B).end_offset == -1

    around(story)


def test_a_follower_that_has_all_waits_and_is_woken_by_an_append() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        broker.clock.passed_ms = 60_000
        waiting = asyncio.ensure_future(fetch(broker, request(0, wait_ms=20_000)))
        await asyncio.sleep(0)
        broker.node.append(b"x")
        broker.node.append(b"and this goes along")
        data = await waiting
        assert isinstance(data.records, FileSlice)
        assert data.records.size > 130

    around(story)


def test_a_follower_that_waits_hears_at_once_that_the_leader_is_another() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        broker.clock.passed_ms = 60_000
        waiting = asyncio.ensure_future(fetch(broker, request(0, wait_ms=20_000)))
        await asyncio.sleep(0)
        broker.node.take(role(C, 2, (A, B)))
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    around(story)


def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        broker.clock.passed_ms = 60_000
        answer = broker.ask(HANDLER, request(0, wait_ms=20_000), 18)
        assert isinstance(answer, Waiting)
        answer.abandon()
        assert not broker.node.partition()._end_waits

    around(story)


def test_before_the_image_knows_a_topic_its_followers_can_fetch() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        assert ORDERS_ID not in broker.image.names
        assert (await fetch(broker, request(0))).error_code == 0

    around(story)


# --- consumers ---


def consumer(offset: int = 0, *, rack: str = "", epoch: int = 1) -> FetchRequest:
    return request(offset, replica=-1, rack=rack, epoch=epoch)


def followed(broker: Around, end: int, high_watermark: int) -> None:
    """A follower of B, with so much."""
    broker.node.take(role(B, 1))
    batches = b"".join(
        build_batch([Record(offset, NOW_MS, None, b"x")], leader_epoch=LeaderEpoch(1)) for offset in range(end)
    )
    broker.node.partition().followed(batches, high_watermark, 0, NOW_MS)


def test_a_consumer_reads_from_a_follower_up_to_what_it_knows_to_be_safe() -> None:
    async def story(broker: Around) -> None:
        followed(broker, 3, 2)
        data = await fetch(broker, consumer(), None)
        assert data.high_watermark == 2
        assert isinstance(data.records, FileSlice)
        data = await fetch(broker, consumer(2), None)
        assert (data.error_code, data.records) == (0, b"")
        assert (await fetch(broker, consumer(3), None)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await fetch(broker, consumer(4), None)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    around(story)


def test_an_old_consumer_is_sent_to_the_leader() -> None:
    async def story(broker: Around) -> None:
        followed(broker, 1, 1)
        asked = consumer()
        asked.topics[0].topic = "orders"
        answer = broker.ask(HANDLER, asked, 10, None)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[union-attr]

    around(story)


def test_a_consumer_with_an_old_epoch_is_told_the_leader_and_its_address() -> None:
    async def story(broker: Around) -> None:
        followed(broker, 1, 1)
        reply = await broker.answer(HANDLER, consumer(epoch=0), None)
        data = reply.responses[0].partitions[0]
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (B, 1)
        assert [(each.node_id, each.host, each.port) for each in reply.node_endpoints] == [(B, "host-2", 9002)]

    around(story)


@pytest.mark.parametrize(
    ("rack", "properties", "expected"),
    [
        ("rack-2", RACK_AWARE, B),
        ("rack-1", RACK_AWARE, -1),
        ("rack-3", RACK_AWARE, -1),
        ("nowhere", RACK_AWARE, -1),
        ("", RACK_AWARE, -1),
        ("rack-2", {}, -1),
    ],
    ids=["a follower's", "the leader's", "out of sync", "nobody's", "none", "not configured"],
)
def test_a_consumer_is_sent_to_a_replica_in_its_rack(rack: str, properties: dict[str, str], expected: int) -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        broker.node.append(b"x")
        for replica in (B, C):
            await fetch(broker, request(1, replica=replica), replica)
        data = await fetch(broker, consumer(rack=rack), None)
        assert data.preferred_read_replica == expected
        assert bool(data.records) is (expected == -1)

    around(story, properties)


def test_a_consumer_is_sent_to_an_observer_too() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B), observers=(C,)))
        broker.node.append(b"x")
        await fetch(broker, request(1, replica=C), C)
        assert (await fetch(broker, consumer(rack="rack-3"), None)).preferred_read_replica == C

    around(story, RACK_AWARE)


def test_where_consumers_read_from_followers_a_new_high_watermark_is_told_at_once() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B, C)))
        broker.clock.passed_ms = 60_000
        broker.node.append(b"x")
        await fetch(broker, request(1, replica=B), B)
        opened = request(1, replica=C)
        opened.session_epoch = 0
        reply = await broker.answer(HANDLER, opened, C)
        assert reply.responses[0].partitions[0].high_watermark == 1
        again = request(1, replica=B, wait_ms=20_000)
        assert (await fetch(broker, again, B)).high_watermark == 1
        waiting = FetchRequest(
            replica_state=ReplicaState(replica_id=C, replica_epoch=7),
            max_wait_ms=20_000,
            min_bytes=10_000,
            session_id=reply.session_id,
            session_epoch=1,
            topics=[],
        )
        parked = asyncio.ensure_future(broker.answer(HANDLER, waiting, C))
        await asyncio.sleep(0)
        assert not parked.done()
        parked.cancel()

    around(story, RACK_AWARE)


def test_the_partition_named_is_the_partition_told() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A, B)))
        assert (await fetch(broker, request(0))).partition_index == ORDERS.partition

    around(story)
