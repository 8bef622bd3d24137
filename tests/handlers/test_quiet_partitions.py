"""A follower that has everything is looked at only briefly, and misses nothing for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handler_cases import LISTENER, Around, around
from replica_cases import ORDERS, ORDERS_ID, TIME_MAX_MS, A, B, C, role

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.fetch import HANDLER
from tidelog.handlers.handler import Context
from tidelog.handlers.replica_fetch import ReplicaFetch
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Callable

LIFE = 7


class Follower:
    """B's session with A, by the real handler. It has all there is and was told all there is."""

    def __init__(self, broker: Around) -> None:
        self.broker = broker
        self.session_id = 0
        self.epoch = 0

    def request(self, *named: FetchPartition, life: int = LIFE) -> FetchRequest:
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=B, replica_epoch=life),
            max_wait_ms=0,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=ORDERS_ID, partitions=list(named))] if named else [],
        )
        self.epoch += 1
        return request

    async def fetch(self, *named: FetchPartition, life: int = LIFE) -> PartitionData | None:
        """What it hears of the partition, if anything."""
        reply = await self.broker.answer(HANDLER, self.request(*named, life=life), B)
        assert reply.error_code == 0
        self.session_id = reply.session_id
        found = [data for topic in reply.responses for data in topic.partitions]
        assert len(found) < 2
        return found[0] if found else None

    def is_looked_at_in_full(self) -> bool:
        services = self.broker.services
        request = self.request()
        scope = services.fetch_sessions.scope(request, 18, services.clock.now_ms())
        looked_at = ReplicaFetch(Context(services, 18, None, LISTENER), request, scope, B, LIFE)
        return bool(looked_at.read(arrived=True))


def at(offset: int, epoch: int = 1) -> FetchPartition:
    return FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1 << 20
    )


async def quiet(broker: Around) -> Follower:
    broker.node.take(role(A, 1))
    broker.clock.passed_ms = 60_000
    follower = Follower(broker)
    await follower.fetch(at(0))
    broker.node.append(b"x", b"y", b"z")
    broker.node.partition().fetched(C, 2, broker.node.replicas.now_ms())
    assert (await follower.fetch()) is not None
    told = await follower.fetch(at(3))
    assert told is not None
    assert told.high_watermark == 2
    assert await follower.fetch() is None
    return follower


def test_nothing_new_is_seen_at_a_glance_and_is_a_sign_of_life() -> None:
    async def story(broker: Around) -> None:
        follower = await quiet(broker)
        assert not follower.is_looked_at_in_full()
        partition = broker.node.partition()
        for _ in range(3):
            broker.clock.passed_ms += TIME_MAX_MS
            assert await follower.fetch() is None
            assert partition.follower(B).caught_up_ms == broker.node.replicas.now_ms()
        broker.node.append(b"more")
        broker.clock.passed_ms += TIME_MAX_MS
        partition.check_lag(broker.node.replicas.now_ms())
        assert broker.node.proposals.latest == (A, B)

    around(story)


def reaches_the_end(broker: Around) -> None:
    broker.node.partition().fetched(C, 3, broker.node.replicas.now_ms())


def is_cut(broker: Around) -> None:
    broker.node.partition().delete_records(1)


def grows(broker: Around) -> None:
    broker.node.append(b"more")


@pytest.mark.parametrize(
    ("happens", "expected"),
    [(reaches_the_end, (3, 0, False)), (is_cut, (2, 1, False)), (grows, (2, 0, True))],
    ids=["high watermark", "log start", "records"],
)
def test_what_is_new_is_told_with_the_next_fetch(
    happens: Callable[[Around], None], expected: tuple[int, int, bool]
) -> None:
    async def story(broker: Around) -> None:
        follower = await quiet(broker)
        happens(broker)
        data = await follower.fetch()
        assert data is not None
        assert (data.high_watermark, data.log_start_offset, bool(data.records)) == expected

    around(story)


def new_reign(broker: Around) -> None:
    broker.node.take(role(A, 2))


def another_leader(broker: Around) -> None:
    broker.node.take(role(C, 2))


def no_replica(broker: Around) -> None:
    broker.node.take(role(A, 1, (A, C), replicas=(A, C), partition_epoch=1))


def deleted(broker: Around) -> None:
    broker.node.replicas.stop(ORDERS, delete=True)


def stopped(broker: Around) -> None:
    broker.node.replicas.stop(ORDERS, delete=False)


def failed(broker: Around) -> None:
    broker.node.fs.fail("sync", 5)
    with pytest.raises(BrokerError):
        broker.node.log.flush()


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (new_reign, ErrorCode.FENCED_LEADER_EPOCH),
        (another_leader, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (no_replica, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (deleted, ErrorCode.UNKNOWN_TOPIC_ID),
        (stopped, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (failed, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_ends_the_quiet_is_told_as_an_error(happens: Callable[[Around], None], code: ErrorCode) -> None:
    async def story(broker: Around) -> None:
        follower = await quiet(broker)
        happens(broker)
        data = await follower.fetch()
        assert data is not None
        assert data.error_code == code

    around(story)


def test_a_follower_of_a_new_reign_is_told_the_high_watermark_anew() -> None:
    async def story(broker: Around) -> None:
        follower = await quiet(broker)
        broker.node.take(role(A, 2))
        data = await follower.fetch(at(3, epoch=2))
        assert data is not None
        assert (data.error_code, data.high_watermark) == (0, 2)

    around(story)


@pytest.mark.parametrize(("life", "known"), [(LIFE + 1, LIFE + 1), (LIFE - 1, LIFE)], ids=["a new life", "an old one"])
def test_a_fetch_of_another_life_is_looked_at_in_full(life: int, known: int) -> None:
    async def story(broker: Around) -> None:
        follower = await quiet(broker)
        data = await follower.fetch(life=life)
        assert (data is not None and data.error_code == ErrorCode.STALE_BROKER_EPOCH) is (life < LIFE)
        assert broker.node.partition().follower(B).broker_epoch == known

    around(story)


def test_a_follower_that_left_the_in_sync_replicas_is_looked_at_until_it_is_back() -> None:
    async def story(broker: Around) -> None:
        follower = await quiet(broker)
        broker.node.take(role(A, 1, (A, C), partition_epoch=1))
        assert follower.is_looked_at_in_full()
        assert broker.node.proposals.latest == (A, C, B)
        broker.node.partition().isr_refused(1)
        await follower.fetch()
        assert len(broker.node.proposals.made) == 2
        broker.node.partition().isr_confirmed(1, (A, C, B), 2)
        assert await follower.fetch() is None
        assert not follower.is_looked_at_in_full()

    around(story)
