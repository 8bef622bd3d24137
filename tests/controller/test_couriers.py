"""Delivering: in order, the newest state, again and again until the broker is gone, and no broker waits for another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cluster_double import until

from tidelog.controller import couriers as module
from tidelog.controller.couriers import Couriers
from tidelog.controller.dispatch import Seal, Stop, tell_changes
from tidelog.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.controller.transitions import PartitionChange
from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.wire.declare import Message

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITION = PartitionImage((1, 2), (1, 2), 1, 3, 5)


class Office:
    def __init__(self) -> None:
        self.image = ClusterImage("cluster", 1)
        self.image.brokers = {each: BrokerImage(each, {}, epoch=each) for each in (1, 2)}
        self.image.put_topic(TopicImage("t", TopicId(b"t" * 16), [PARTITION, PARTITION]))
        self.sent: list[tuple[int, type]] = []
        self.troubles: list[Exception | int] = []
        """What happens to the next requests."""
        self.stopped: list[tuple[int, list[TopicPartition]]] = []
        self.refusals = 0
        self.stop_errors: list[StopReplicaPartitionError] = []
        self.held: set[int] = set()
        self.release = asyncio.Event()
        self.couriers = Couriers(self.send, self.image, Seal(1, 1, "x"), self.on_stopped, self.on_refused)

    def on_stopped(self, broker_id: int, partitions: list[TopicPartition]) -> None:
        self.stopped.append((broker_id, partitions))

    def on_refused(self) -> None:
        self.refusals += 1

    async def send(self, broker_id: int, request: Message) -> Message:
        self.sent.append((broker_id, type(request)))
        if broker_id in self.held:
            await self.release.wait()
        code = 0
        if self.troubles:
            trouble = self.troubles.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            code = trouble
        if isinstance(request, LeaderAndIsrRequest):
            error = LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
            topic = LeaderAndIsrTopicError(topic_id=b"t" * 16, partition_errors=[error])
            return LeaderAndIsrResponse(error_code=code, topics=[topic])
        if isinstance(request, StopReplicaRequest):
            return StopReplicaResponse(error_code=code, partition_errors=self.stop_errors)
        return UpdateMetadataResponse(error_code=code)


def in_office(story: Callable[[Office], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.0)
    monkeypatch.setattr(module, "RETRY_MAX_S", 0.0)

    async def main() -> None:
        office = Office()
        for broker in office.image.brokers.values():
            office.couriers.open(broker)
        office.couriers.wake()
        await office.couriers.delivered([1, 2])
        office.sent.clear()
        await story(office)
        office.couriers.close_all()

    asyncio.run(main())


def change(number: int = 0) -> PartitionChange:
    return PartitionChange(TopicPartition("t", number), PARTITION, PARTITION)


def test_roles_come_before_metadata_and_stops_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(office: Office) -> None:
        tell_changes(office.couriers.outboxes, [change()])
        office.couriers.outboxes[2].add_stop(T1, Stop(1, delete=True))
        office.couriers.wake()
        await office.couriers.delivered([1, 2])
        to_second = [kind for broker_id, kind in office.sent if broker_id == 2]
        assert to_second == [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]
        assert office.stopped == [(2, [T1])]

    in_office(story, monkeypatch)


@pytest.mark.parametrize(
    "trouble",
    [PeerUnreachable("away"), OSError("broken"), ZeroDivisionError(), int(ErrorCode.STALE_BROKER_EPOCH)],
    ids=["unreachable", "broken", "our own fault", "refused"],
)
def test_what_was_not_delivered_is_told_again(trouble: Exception | int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(office: Office) -> None:
        office.couriers.close([1])
        tell_changes(office.couriers.outboxes, [change()])
        office.troubles = [trouble, 0, trouble]
        office.couriers.wake()
        await office.couriers.delivered([2])
        assert [kind for _broker_id, kind in office.sent] == [
            LeaderAndIsrRequest,
            LeaderAndIsrRequest,
            UpdateMetadataRequest,
            LeaderAndIsrRequest,
            UpdateMetadataRequest,
        ]
        assert not office.refusals

    in_office(story, monkeypatch)


def test_a_newer_controller_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(office: Office) -> None:
        office.troubles = [int(ErrorCode.STALE_CONTROLLER_EPOCH)]
        office.couriers.outboxes[1].brokers = True
        office.couriers.wake()
        await office.couriers.delivered([1])
        assert office.refusals == 1

    in_office(story, monkeypatch)


def test_replicas_that_were_not_there_count_as_deleted_and_others_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(office: Office) -> None:
        office.stop_errors = [
            StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR),
            StopReplicaPartitionError(
                topic_name="t", partition_index=1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ),
        ]
        for each in (T0, T1, TopicPartition("t", 2)):
            office.couriers.outboxes[1].add_stop(each, Stop(1, delete=each.partition < 2))
        office.couriers.wake()
        await office.couriers.delivered([1])
        assert office.stopped == [(1, [T1])]

    in_office(story, monkeypatch)


def test_a_slow_broker_delays_only_those_who_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(office: Office) -> None:
        office.held = {2}
        tell_changes(office.couriers.outboxes, [change(), change(1)])
        office.couriers.wake()
        await office.couriers.delivered([1])
        waiting = asyncio.ensure_future(office.couriers.delivered([1, 2]))
        await until(lambda: (2, LeaderAndIsrRequest) in office.sent)
        late = asyncio.ensure_future(office.couriers.delivered([2]))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert not late.done()
        office.release.set()
        await asyncio.wait([waiting, late])

    in_office(story, monkeypatch)


def test_nobody_waits_for_a_broker_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(office: Office) -> None:
        office.held = {2}
        tell_changes(office.couriers.outboxes, [change()])
        office.couriers.wake()
        waiting = asyncio.ensure_future(office.couriers.delivered([2]))
        await until(lambda: (2, LeaderAndIsrRequest) in office.sent)
        tell_changes(office.couriers.outboxes, [change()])
        also = asyncio.ensure_future(office.couriers.delivered([2]))
        await asyncio.sleep(0)
        office.couriers.close([2])
        await asyncio.wait([waiting, also])
        await office.couriers.delivered([2, 77])

    in_office(story, monkeypatch)
