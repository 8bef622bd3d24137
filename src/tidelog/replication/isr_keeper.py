"""Asks the controller for other in-sync replicas, by AlterPartition (KIP-497), for all partitions led here.

What leaders propose is collected while a request is on its way, and goes out together with the next one. A proposal
stays in force at its partition, which waits for everyone it could concern, until the controller has answered it or has
given the partition a newer role.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.clock import Clock
    from tidelog.replication.partition import Partition
    from tidelog.types import TopicPartition
    from tidelog.wire.declare import Message
    from tidelog.wire.messages.alter_partition import PartitionDataResponse

logger = logging.getLogger(__name__)

RETRY_MS_MIN = 50
RETRY_MS_MAX = 1000

_REFUSALS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_REQUEST})
"""Nothing has changed, and asking for the same again would not help. All other errors are tried again, until an answer
or a new role comes: somebody knows more than we do."""


class Proposal(NamedTuple):
    partition: Partition
    isr: tuple[int, ...]
    leader_epoch: int

    def is_open(self) -> bool:
        """Whether an answer still matters."""
        return self.partition.leader_epoch == self.leader_epoch and self.partition.proposed_isr == self.isr


class IsrKeeper:
    def __init__(
        self,
        local_id: int,
        broker_epoch: Callable[[], int],
        send_to_controller: Callable[[Message], Awaitable[Any]],
        clock: Clock,
        *,
        check_lag: Callable[[], None],
        check_interval_ms: int,
    ) -> None:
        """`check_lag` looks for followers that have fallen behind; that is done by the clock, here."""
        self._local_id = local_id
        self._broker_epoch = broker_epoch
        self._send = send_to_controller
        self._clock = clock
        self._check_lag = check_lag
        self._check_interval_s = check_interval_ms / 1000
        self._waiting: dict[TopicPartition, Proposal] = {}
        self._news = asyncio.Event()
        self._timers: set[asyncio.TimerHandle] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._ask(), name="in-sync replicas"),
            asyncio.create_task(self._look_for_lag(), name="lag of followers"),
        ]

    async def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        self._waiting[partition.topic_partition] = Proposal(partition, isr, partition.leader_epoch)
        self._news.set()

    # --- by the clock ---

    async def _look_for_lag(self) -> None:
        while True:
            due_s = self._clock.monotonic() + self._check_interval_s
            await asyncio.sleep(self._check_interval_s)
            if self._clock.monotonic() - due_s > self._check_interval_s:
                # This process stood still. That followers were not heard meanwhile says nothing about them.
                logger.warning("this broker was paused: its followers are not judged by that time")
                continue
            try:
                self._check_lag()
            except Exception:
                logger.exception("looking for followers that lag failed; it is tried again")

    # --- asking ---

    async def _ask(self) -> None:
        pause_ms = RETRY_MS_MIN
        while True:
            await self._news.wait()
            self._news.clear()
            proposals = [each for each in self._waiting.values() if each.is_open()]
            self._waiting.clear()
            if not proposals:
                continue
            try:
                answered = await self._ask_for(proposals)
            except Exception:
                logger.exception("asking for other in-sync replicas failed; it is tried again")
                answered = False
            if answered:
                pause_ms = RETRY_MS_MIN
                continue
            self._put_back(proposals)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, RETRY_MS_MAX)

    async def _ask_for(self, proposals: list[Proposal]) -> bool:
        """False if nobody could answer."""
        try:
            response = await self._send(self._request(proposals))
        except OSError as error:
            logger.info("no controller could be asked for other in-sync replicas: %s", error)
            return False
        if not isinstance(response, AlterPartitionResponse) or response.error_code:
            logger.info("the controller gave no answer about in-sync replicas: %r", response)
            return False
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        for each in proposals:
            self._settle(each, answers.get((each.partition.log.topic_id, each.partition.topic_partition.partition)))
        return True

    def _request(self, proposals: Iterable[Proposal]) -> AlterPartitionRequest:
        broker_epoch = self._broker_epoch()
        topics: dict[bytes, TopicData] = {}
        for partition, isr, leader_epoch in proposals:
            topic_id = partition.log.topic_id
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id, partitions=[]))
            members = [
                BrokerState(
                    broker_id=each,
                    broker_epoch=broker_epoch if each == self._local_id else partition.follower(each).broker_epoch,
                )
                for each in isr
            ]
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=leader_epoch,
                    new_isr_with_epochs=members,
                    partition_epoch=partition.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._local_id, broker_epoch=broker_epoch, topics=list(topics.values()))

    def _settle(self, proposal: Proposal, answer: PartitionDataResponse | None) -> None:
        partition = proposal.partition
        if answer is not None and not answer.error_code:
            if answer.leader_id == self._local_id and answer.leader_epoch == proposal.leader_epoch:
                partition.isr_confirmed(answer.leader_epoch, tuple(answer.isr), answer.partition_epoch)
            return
        code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
        logger.info("%s: in-sync replicas %s were not taken: error %d", partition.topic_partition, proposal.isr, code)
        if code in _REFUSALS:
            # Not at once: the followers would be proposed again with their next fetch.
            self._later(lambda: self._give_up(proposal))
        else:
            self._later(lambda: self._put_back([proposal]))

    def _give_up(self, proposal: Proposal) -> None:
        if proposal.is_open():
            proposal.partition.isr_refused(proposal.leader_epoch)

    def _put_back(self, proposals: Iterable[Proposal]) -> None:
        for each in proposals:
            if each.is_open():
                self._waiting.setdefault(each.partition.topic_partition, each)
                self._news.set()

    def _later(self, step: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            step()

        timer = asyncio.get_running_loop().call_later(RETRY_MS_MAX / 1000, run)
        self._timers.add(timer)
