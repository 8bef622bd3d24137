"""DeleteRecords: records are gone when every live replica has deleted them."""

from __future__ import annotations

import asyncio

import pytest
from handler_cases import Around, around
from replica_cases import ORDERS, ORDERS_ID, A, B, C, role

from tidelog.errors import ErrorCode
from tidelog.handlers.delete_records import HANDLER
from tidelog.handlers.fetch import HANDLER as FETCH
from tidelog.handlers.handler import Waiting
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

LONG_MS = 30_000


def request(offset: int = 2, timeout_ms: int = LONG_MS) -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=[part])], timeout_ms=timeout_ms)


def fetched(broker: Around, replica: int, log_start: int, offset: int = 3) -> None:
    """As the handler of fetches takes a follower's fetch."""
    partition = broker.node.partition()
    partition.follower(replica).start_offset = log_start
    partition.fetched(replica, offset, broker.node.replicas.now_ms())
    broker.node.replicas.deletions.look_at(partition)


def leading(broker: Around, *, replicas: tuple[int, ...] = (A, B, C)) -> None:
    broker.node.take(role(A, 1, replicas, replicas=replicas))
    for value in (b"x", b"y", b"z"):
        broker.node.append(value)
    for each in replicas[1:]:
        fetched(broker, each, 0)


async def answer(broker: Around, asked: DeleteRecordsRequest) -> tuple[int, int]:
    reply = await broker.answer(HANDLER, asked, None)
    (result,) = reply.topics[0].partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize(("offset", "target"), [(2, 2), (-1, 3)])
def test_the_answer_waits_until_all_replicas_have_deleted_the_records(offset: int, target: int) -> None:
    async def story(broker: Around) -> None:
        leading(broker)
        deleted = asyncio.ensure_future(answer(broker, request(offset)))
        await asyncio.sleep(0)
        fetched(broker, B, target)
        fetched(broker, C, 1)
        await asyncio.sleep(0)
        assert not deleted.done()
        fetched(broker, C, target)
        assert await deleted == (0, target)

    around(story)


def test_whose_broker_is_gone_is_not_waited_for() -> None:
    async def story(broker: Around) -> None:
        leading(broker)
        del broker.image.brokers[C]
        deleted = asyncio.ensure_future(answer(broker, request()))
        await asyncio.sleep(0)
        fetched(broker, B, 2)
        assert await deleted == (0, 2)

    around(story)


def test_what_is_deleted_everywhere_is_answered_at_once() -> None:
    async def story(broker: Around) -> None:
        leading(broker)
        broker.node.partition().delete_records(2)
        for each in (B, C):
            fetched(broker, each, 2)
        assert not isinstance(broker.ask(HANDLER, request(1), 2), Waiting)
        assert await answer(broker, request(1)) == (0, 2)

    around(story)


def test_a_single_replica_has_nobody_to_wait_for() -> None:
    async def story(broker: Around) -> None:
        broker.node.take(role(A, 1, (A,), replicas=(A, B)))
        broker.node.append(b"x")
        broker.node.take(role(A, 2, (A,), replicas=(A,)))
        assert not isinstance(broker.ask(HANDLER, request(0), 2), Waiting)

    around(story)


def test_patience_ends_with_the_lowest_start_there_is() -> None:
    async def story(broker: Around) -> None:
        leading(broker)
        fetched(broker, B, 1)
        assert await answer(broker, request(timeout_ms=0)) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert broker.node.partition().log.log_start_offset == 2
        assert not broker.node.replicas.deletions.waits

    around(story)


def test_who_loses_the_leadership_does_not_keep_others_waiting() -> None:
    async def story(broker: Around) -> None:
        leading(broker)
        deleted = asyncio.ensure_future(answer(broker, request()))
        await asyncio.sleep(0)
        broker.node.take(role(B, 2))
        assert await deleted == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    around(story)


def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    async def story(broker: Around) -> None:
        leading(broker)
        waiting = broker.ask(HANDLER, request(), 2)
        assert isinstance(waiting, Waiting)
        waiting.abandon()
        assert not broker.node.replicas.deletions.waits

    around(story)


@pytest.mark.parametrize("offset", [4, -2])
def test_what_is_not_there_cannot_be_deleted(offset: int) -> None:
    async def story(broker: Around) -> None:
        leading(broker)
        assert await answer(broker, request(offset)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert broker.node.partition(ORDERS).log.log_start_offset == 0

    around(story)


def test_a_followers_fetch_says_that_it_has_deleted_them_too() -> None:
    async def story(broker: Around) -> None:
        leading(broker, replicas=(A, B))
        deleted = asyncio.ensure_future(answer(broker, request()))
        await asyncio.sleep(0)
        part = FetchPartition(
            partition=0, current_leader_epoch=1, fetch_offset=3, log_start_offset=2, partition_max_bytes=1 << 20
        )
        asked = FetchRequest(
            replica_state=ReplicaState(replica_id=B, replica_epoch=1),
            max_wait_ms=0,
            min_bytes=1,
            topics=[FetchTopic(topic_id=ORDERS_ID, partitions=[part])],
        )
        await broker.answer(FETCH, asked, B)
        assert await deleted == (0, 2)

    around(story)
