"""Delivers what brokers are to be told: one task per broker, its requests in order, the newest state each time.

What cannot be delivered is tried again until the broker is gone: a broker that does not answer delays nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.controller.dispatch import Outbox, write_requests
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrResponse
from tidelog.wire.messages.stop_replica import StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from tidelog.controller.dispatch import Requests, Seal
    from tidelog.controller.image import BrokerImage, ClusterImage
    from tidelog.wire.declare import Message

    Send = Callable[[int, Message], Awaitable[Message]]
    Answers = dict[TopicPartition, int]

logger = logging.getLogger(__name__)

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
MEND_FIRST_S = 1.0
MEND_MAX_S = 30.0
"""How long to wait until a broker is asked again for single replicas that it could not take up or delete."""

_STOPPED = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""A replica that is not there is stopped, too."""


class Refused(Exception):  # noqa: N818 - named for the state of things
    """The broker answered, but did not take the request."""

    def __init__(self, code: int) -> None:
        super().__init__(f"it refuses with error {code}")


class Couriers:
    """The outboxes of all live brokers, and those who empty them."""

    def __init__(
        self,
        send: Send,
        image: ClusterImage,
        seal: Seal,
        on_stopped: Callable[[int, list[TopicPartition]], None],
        on_refused: Callable[[], None],
        on_roles: Callable[[BrokerImage, Answers], None] = lambda _broker, _answers: None,
    ) -> None:
        """`on_stopped` hears of replicas that a broker has deleted, `on_refused` of a newer controller, `on_roles` of
        how a broker answered for the replicas that it was given roles for."""
        self.outboxes: dict[int, Outbox] = {}
        self._send = send
        self._image = image
        self._seal = seal
        self._on_stopped = on_stopped
        self._on_refused = on_refused
        self._on_roles = on_roles
        self._couriers: dict[int, _Courier] = {}

    def open(self, broker: BrokerImage) -> None:
        """A broker that has come is told everything."""
        self.close([broker.broker_id])
        self.outboxes[broker.broker_id] = Outbox(full=True)
        self._couriers[broker.broker_id] = _Courier(self, broker)

    def close(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            self.outboxes.pop(broker_id, None)
            courier = self._couriers.pop(broker_id, None)
            if courier is not None:
                courier.close()

    def close_all(self) -> None:
        self.close(list(self._couriers))

    def wake(self) -> None:
        """To be called when something has been put into outboxes."""
        for broker_id, outbox in self.outboxes.items():
            if outbox:
                self._couriers[broker_id].wake()

    async def delivered(self, broker_ids: Collection[int]) -> None:
        """Waits until these brokers have been told everything that is in their outboxes now, or are gone."""
        waiting = [self._couriers[each].delivered() for each in broker_ids if each in self._couriers]
        if waiting:
            await asyncio.wait(waiting)

    async def deliver(self, outbox: Outbox, broker: BrokerImage) -> Outbox:
        """Gives what the broker took but could not do. Raises ConnectionError, OSError or Refused when it did not take
        all."""
        undone = Outbox()
        requests = write_requests(outbox, broker, self._image, self._seal)
        if requests.metadata_first:
            await self._update_metadata(requests, broker)
            await self._leader_and_isr(requests, broker, undone)
        else:
            await self._leader_and_isr(requests, broker, undone)
            await self._update_metadata(requests, broker)
        if requests.stop_replica is not None:
            response = await self._send(broker.broker_id, requests.stop_replica)
            assert isinstance(response, StopReplicaResponse)
            self._check(response.error_code)
            self._note_stopped(broker.broker_id, outbox, response, undone)
        return undone

    async def _leader_and_isr(self, requests: Requests, broker: BrokerImage, undone: Outbox) -> None:
        if requests.leader_and_isr is None:
            return
        response = await self._send(broker.broker_id, requests.leader_and_isr)
        assert isinstance(response, LeaderAndIsrResponse)
        self._check(response.error_code)
        names = {topic.topic_id: topic.topic_name for topic in requests.leader_and_isr.topic_states}
        answers: Answers = {}
        for topic in response.topics:
            for partition in topic.partition_errors:
                place = TopicPartition(names.get(topic.topic_id, ""), partition.partition_index)
                answers[place] = partition.error_code
                if partition.error_code:
                    logger.error("broker %d cannot take up %s: error %d", broker.broker_id, place, partition.error_code)
                    undone.add_role(place, is_new=False)
        self._on_roles(broker, answers)

    async def _update_metadata(self, requests: Requests, broker: BrokerImage) -> None:
        if requests.update_metadata is None:
            return
        response = await self._send(broker.broker_id, requests.update_metadata)
        assert isinstance(response, UpdateMetadataResponse)
        self._check(response.error_code)

    def _check(self, code: int) -> None:
        if code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._on_refused()
        if code:
            raise Refused(code)

    def _note_stopped(self, broker_id: int, outbox: Outbox, response: StopReplicaResponse, undone: Outbox) -> None:
        failed = {
            TopicPartition(each.topic_name, each.partition_index)
            for each in response.partition_errors
            if each.error_code not in _STOPPED
        }
        if failed:
            logger.error("broker %d cannot delete %s", broker_id, ", ".join(map(str, sorted(failed)[:10])))
        for each in response.partition_errors:
            place = TopicPartition(each.topic_name, each.partition_index)
            if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR and place in outbox.stops:
                undone.add_stop(place, outbox.stops[place])
        self._on_stopped(broker_id, [each for each, stop in outbox.stops.items() if stop.delete and each not in failed])


class _Courier:
    def __init__(self, couriers: Couriers, broker: BrokerImage) -> None:
        self._couriers = couriers
        self._broker = broker
        self._awake = asyncio.Event()
        self._carrying = False
        self._waiting: list[asyncio.Future[None]] = []
        """Those who wait until everything is delivered that was there when they came."""
        self._carried_for: list[asyncio.Future[None]] = []
        self._undone = Outbox()
        self._mending: asyncio.TimerHandle | None = None
        self._mend_s = MEND_FIRST_S
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"courier-{broker.broker_id}")

    def wake(self) -> None:
        self._awake.set()

    def close(self) -> None:
        self._task.cancel()
        if self._mending is not None:
            self._mending.cancel()
        for future in (*self._waiting, *self._carried_for):
            if not future.done():
                future.set_result(None)

    def delivered(self) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        if self._couriers.outboxes[self._broker.broker_id]:
            self._waiting.append(future)
        elif self._carrying:
            self._carried_for.append(future)
        else:
            future.set_result(None)
        return future

    def _mend_later(self, undone: Outbox) -> None:
        """Has the broker told again, after a while, what it could not do: a disk may have room again by then."""
        if not undone:
            if self._mending is None:
                self._mend_s = MEND_FIRST_S
            return
        undone.put_back(self._undone)
        self._undone = undone
        if self._mending is None:
            self._mending = self._loop.call_later(self._mend_s, self._mend)
            self._mend_s = min(self._mend_s * 2, MEND_MAX_S)

    def _mend(self) -> None:
        self._mending = None
        undone, self._undone = self._undone, Outbox()
        self._couriers.outboxes[self._broker.broker_id].put_back(undone)
        self._awake.set()

    async def _run(self) -> None:
        outboxes, broker_id = self._couriers.outboxes, self._broker.broker_id
        retry_s = RETRY_FIRST_S
        while True:
            await self._awake.wait()
            self._awake.clear()
            if not outboxes[broker_id]:
                continue
            parcel, outboxes[broker_id] = outboxes[broker_id], Outbox()
            self._carried_for, self._waiting = [*self._carried_for, *self._waiting], []
            self._carrying = True
            try:
                self._mend_later(await self._couriers.deliver(parcel, self._broker))
            except Exception as error:  # the task's top frame: whatever it was, the broker must be told
                unexpected = not isinstance(error, (OSError, Refused))
                logger.log(
                    logging.ERROR if unexpected else logging.INFO,
                    "broker %d is told again in %.2f s: %s",
                    broker_id,
                    retry_s,
                    error,
                    exc_info=unexpected,
                )
                outboxes[broker_id].put_back(parcel)
                self._awake.set()
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, RETRY_MAX_S)
                continue
            retry_s = RETRY_FIRST_S
            self._carrying = False
            done, self._carried_for = self._carried_for, []
            for future in done:
                if not future.done():
                    future.set_result(None)
