"""Which markers go out, and which must not any more. Time is simulated."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tidelog.broker.markers import Markers
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
    from tidelog.wire.declare import Message

EFFECT = SendMarkers("writer", 7, 0, True, frozenset({TopicPartition("tides", 0)}), 0)


class Leaders:
    """All partitions are led by broker 1, which answers or does not."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.loop = SimLoop(self.timeline, "coordinator", random.Random(1))  # type: ignore[abstract]
        self.epoch: int | None = 5
        self.reachable = True
        self.asked: list[WriteTxnMarkersRequest] = []
        self.written: list[SendMarkers] = []
        self.markers = Markers(
            self._send, lambda _place: 1, lambda _id: self.epoch, self.written.append, SimClock(self.timeline)
        )

    async def _send(self, _broker: int, message: Message) -> Any:
        assert isinstance(message, WriteTxnMarkersRequest)
        self.asked.append(message)
        if not self.reachable:
            raise PeerUnreachable("no answer")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=each, error_code=ErrorCode.NONE)
                                for each in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in message.markers
            ]
        )

    def write(self, effect: SendMarkers = EFFECT) -> None:
        self.loop.call_soon(self.markers.write, effect)

    def run(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    @property
    def epochs(self) -> list[int]:
        return [marker.coordinator_epoch for request in self.asked for marker in request.markers]


def test_what_could_not_be_written_is_tried_again() -> None:
    leaders = Leaders()
    leaders.reachable = False
    leaders.write()
    leaders.run(1)
    assert leaders.written == []
    leaders.reachable = True
    leaders.run(1)
    assert leaders.written == [EFFECT]
    assert len(leaders.markers) == 0


def test_whoever_lost_the_coordination_and_got_it_back_does_not_go_on_with_what_he_had() -> None:
    """Another one has ended that transaction meanwhile: under the new epoch, its marker would end the next one."""
    leaders = Leaders()
    leaders.reachable = False
    leaders.write()
    leaders.run(0.01)
    leaders.epoch = 7
    leaders.reachable = True
    leaders.run(60)
    assert leaders.epochs == [5]
    assert leaders.written == []
    assert len(leaders.markers) == 0


def test_the_same_outcome_loaded_in_a_later_epoch_is_written_in_that_one() -> None:
    leaders = Leaders()
    leaders.reachable = False
    leaders.write()
    leaders.run(0.01)
    leaders.epoch = 7
    leaders.reachable = True
    leaders.write()
    leaders.run(60)
    assert leaders.epochs == [5, 7]
    assert leaders.written == [EFFECT]


def test_one_who_is_no_coordinator_any_more_stops() -> None:
    leaders = Leaders()
    leaders.reachable = False
    leaders.write()
    leaders.run(0.01)
    leaders.epoch = None
    leaders.run(60)
    assert leaders.epochs == [5]
    assert len(leaders.markers) == 0
