"""Markers reach every partition of a transaction, through whatever stands in their way. Time is simulated."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.broker.markers import UNKNOWN_TOPIC_PATIENCE_S, Markers
from tidelog.coordinators.transactions.shard import SendMarkers
from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.testing.sim.sim_clock import SimClock
from tidelog.testing.sim.timeline import SimLoop, Timeline
from tidelog.types import TopicPartition
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from tidelog.wire.declare import Message

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
COMMIT = SendMarkers("x", 1000, 3, True, frozenset({A0, A1, B0}), 2)


class Stage:
    """Brokers that write markers, or answer as they are told to."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.loop = SimLoop(self.timeline, "broker", random.Random(1))  # type: ignore[abstract]
        self.leaders: dict[TopicPartition, int] = {A0: 1, A1: 2, B0: 2}
        self.refusals: dict[TopicPartition, ErrorCode] = {}
        self.unreachable: set[int] = set()
        self.held: list[asyncio.Future[None]] | None = None
        """What requests wait for, if they are held up."""
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.written: dict[TopicPartition, list[tuple[int, int, bool]]] = {}
        self.done: list[SendMarkers] = []
        self.markers = Markers(self.send, self.leaders.get, lambda _id: 7, self.done.append, SimClock(self.timeline))

    async def send(self, broker: int, request: Message) -> Any:
        assert isinstance(request, WriteTxnMarkersRequest)
        self.requests.append((broker, request))
        if self.held is not None:
            held: asyncio.Future[None] = self.loop.create_future()
            self.held.append(held)
            await held
        if broker in self.unreachable:
            raise PeerUnreachable(f"broker {broker} is away")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=number,
                                    error_code=self.write(
                                        broker,
                                        TopicPartition(topic.name, number),
                                        (marker.producer_id, marker.producer_epoch, marker.transaction_result),
                                    ),
                                )
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def write(self, broker: int, place: TopicPartition, marker: tuple[int, int, bool]) -> ErrorCode:
        if self.leaders.get(place) != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if place in self.refusals:
            return self.refusals[place]
        self.written.setdefault(place, []).append(marker)
        return ErrorCode.NONE

    def do(self, action: Callable[[], object], duration_s: float = 0.0) -> None:
        self.loop.call_soon(action)
        self.pass_time(duration_s)

    def pass_time(self, duration_s: float) -> None:
        self.timeline.run_until(self.timeline.now + duration_s)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    assert made.loop.failures == []
    made.loop.discard()


def test_each_leader_is_sent_its_partitions_in_one_request(stage: Stage) -> None:
    stage.do(lambda: stage.markers.write(COMMIT))
    assert set(stage.written) == COMMIT.partitions
    assert sorted(broker for broker, _ in stage.requests) == [1, 2]
    for _broker, request in stage.requests:
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (1000, 3, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (7, 2)
    assert stage.done == [COMMIT]
    assert len(stage.markers) == 0


def test_what_comes_while_a_request_is_on_its_way_goes_together_with_the_next(stage: Stage) -> None:
    stage.held = []
    effects = [SendMarkers(f"x{n}", n, 0, n % 2 == 0, frozenset({A0}), 2) for n in range(10)]
    for effect in effects:
        stage.do(lambda effect=effect: stage.markers.write(effect))  # type: ignore[misc]
    assert len(stage.requests) == 1
    held, stage.held = stage.held, None
    stage.do(lambda: held[0].set_result(None))
    assert [len(request.markers) for _, request in stage.requests] == [1, 9]
    assert stage.done == effects


def test_markers_follow_their_partition_to_its_next_leader(stage: Stage) -> None:
    stage.unreachable = {2}
    stage.do(lambda: stage.markers.write(COMMIT))
    stage.leaders[A1] = -1
    stage.leaders[B0] = 1
    stage.pass_time(1)
    assert set(stage.written) == {A0, B0}
    stage.leaders[A1] = 3
    stage.pass_time(1)
    assert stage.done == [COMMIT]
    assert stage.written == {place: [(1000, 3, True)] for place in COMMIT.partitions}


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_SERVER_ERROR],
)
def test_a_partition_that_cannot_write_now_is_asked_again_and_the_others_are_not(stage: Stage, code: ErrorCode) -> None:
    stage.refusals[A1] = code
    stage.do(lambda: stage.markers.write(COMMIT), 5)
    assert not stage.done
    del stage.refusals[A1]
    stage.pass_time(1)
    assert stage.done == [COMMIT]
    assert stage.written == {place: [(1000, 3, True)] for place in COMMIT.partitions}


def test_a_partition_that_has_gone_on_needs_no_marker(stage: Stage) -> None:
    stage.refusals[A1] = ErrorCode.INVALID_PRODUCER_EPOCH
    stage.do(lambda: stage.markers.write(COMMIT))
    assert stage.done == [COMMIT]


def test_a_deleted_topic_needs_no_marker(stage: Stage) -> None:
    del stage.leaders[B0]
    stage.do(lambda: stage.markers.topics_deleted(["b"]))
    stage.do(lambda: stage.markers.write(COMMIT))
    assert stage.done == [COMMIT]


def test_a_topic_that_is_not_known_yet_is_waited_for(stage: Stage) -> None:
    del stage.leaders[B0]
    stage.do(lambda: stage.markers.write(COMMIT), UNKNOWN_TOPIC_PATIENCE_S - 1)
    assert not stage.done
    stage.leaders[B0] = 2
    stage.pass_time(1)
    assert stage.done == [COMMIT]
    assert set(stage.written) == COMMIT.partitions


def test_a_topic_that_stays_unknown_counts_as_deleted(stage: Stage) -> None:
    del stage.leaders[B0]
    stage.do(lambda: stage.markers.write(COMMIT), UNKNOWN_TOPIC_PATIENCE_S + 1)
    assert stage.done == [COMMIT]


def test_who_was_replaced_without_being_told_gives_up(stage: Stage) -> None:
    stage.refusals[A0] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    stage.do(lambda: stage.markers.write(COMMIT), 10)
    assert not stage.done
    assert len(stage.markers) == 0


def test_what_is_forgotten_is_not_tried_again(stage: Stage) -> None:
    stage.unreachable = {2}
    stage.do(lambda: stage.markers.write(COMMIT))
    stage.do(lambda: stage.markers.forget(lambda name: name == "x"))
    stage.unreachable = set()
    stage.pass_time(10)
    assert set(stage.written) == {A0}
    assert not stage.done


def test_loading_again_begins_nothing_twice(stage: Stage) -> None:
    stage.held = []
    for _ in range(3):
        stage.do(lambda: stage.markers.write(COMMIT))
    held, stage.held = stage.held, None
    for each in held:
        stage.do(lambda each=each: each.set_result(None))  # type: ignore[misc]
    assert len(stage.requests) == 2
    assert stage.done == [COMMIT]


def test_a_sender_that_fails_in_an_unforeseen_way_is_tried_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [ValueError("a bug")]

    async def fail_once(broker: int, request: Message) -> Any:
        if failures:
            raise failures.pop()
        return await stage.send(broker, request)

    markers = Markers(fail_once, stage.leaders.get, lambda _id: 7, stage.done.append, SimClock(stage.timeline))
    stage.do(lambda: markers.write(COMMIT), 1)
    assert stage.done == [COMMIT]
    assert "a bug" in caplog.text


def test_stopping_leaves_nothing_behind(stage: Stage) -> None:
    stage.held = []
    stage.do(lambda: stage.markers.write(COMMIT))
    stage.timeline.run_until_done(stage.loop.create_task(stage.markers.stop()), 1)
    stage.pass_time(10)
    assert len(stage.requests) == 2
    assert not stage.done
