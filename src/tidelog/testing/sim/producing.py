"""Simulated producers: they retry as real ones do, remember what they were told, and say at the end what must be there.

Each partition is fed by a task of its own, one batch in flight. An idempotent producer repeats a batch under its
sequence number until it gets an answer; another one may write it twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.records.build import build_batch
from tidelog.records.header import peek
from tidelog.records.record import Record
from tidelog.testing.sim.clients import ClusterClient
from tidelog.types import ProducerId
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.testing.sim.checker import Checker
    from tidelog.testing.sim.world import World
    from tidelog.types import TopicPartition
    from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse

ACKS_ALL, ACKS_LEADER = -1, 1
_PRODUCE_TIMEOUT_MS = 3000
_UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class Sent:
    """One batch, and what became of it as far as its producer knows."""

    topic_partition: TopicPartition
    crc: int
    sequence: int
    acknowledged: bool = False
    attempts: int = 0


class SimProducer(ClusterClient):
    def __init__(
        self,
        world: World,
        checker: Checker,
        name: str,
        brokers: Sequence[int],
        *,
        partitions: Sequence[TopicPartition],
        acks: int = ACKS_ALL,
        idempotent: bool = True,
        pause_s: float = 0.2,
    ) -> None:
        super().__init__(world, checker, name, brokers)
        self.acks = acks
        self.idempotent = idempotent
        self.sent: list[Sent] = []
        self.producer_id = ProducerId(-1)
        self._partitions = list(partitions)
        self._pause_s = pause_s
        self._number = 0

    def start(self) -> None:
        self.loop.create_task(self._run())

    async def _run(self) -> None:
        if self.idempotent:
            self.producer_id = await self._init_producer_id()
        await asyncio.gather(*(self._feed(each) for each in self._partitions))

    async def _init_producer_id(self) -> ProducerId:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            try:
                reply = await self.ask(self.chance.choice(self._brokers), request)
                if not reply.error_code:
                    return ProducerId(reply.producer_id)
            except PeerUnreachable:
                pass
            await self.back_off()

    async def _feed(self, topic_partition: TopicPartition) -> None:
        sequence = 0
        while not self.stopping:
            await asyncio.sleep(self.chance.expovariate(1 / self._pause_s))
            count = self.chance.randint(1, 4)
            batch = self._build(count, sequence if self.idempotent else -1)
            sent = Sent(topic_partition, peek(batch).crc, sequence if self.idempotent else -1)
            self.sent.append(sent)
            await self._deliver(sent, batch)
            sequence += count

    def _build(self, count: int, sequence: int) -> bytes:
        records = []
        now_ms = int(self.world.timeline.now * 1000) + 1_750_000_000_000
        for offset in range(count):
            self._number += 1
            records.append(Record(offset, now_ms, None, f"{self.name}/{self._number}".encode(), ()))
        return bytes(
            build_batch(
                records,
                producer_id=self.producer_id,
                producer_epoch=0 if self.idempotent else -1,
                base_sequence=sequence,
            )
        )

    async def _deliver(self, sent: Sent, batch: bytes) -> None:
        while not sent.acknowledged:
            leader, _epoch = await self.leader(sent.topic_partition)
            sent.attempts += 1
            try:
                reply: ProduceResponse = await self.ask(leader, self._request(sent.topic_partition, batch))
            except PeerUnreachable:
                self.forget(sent.topic_partition)
                await self.back_off()
                continue
            part = reply.responses[0].partition_responses[0]
            if not self._settle(sent, part):
                self.forget(sent.topic_partition)
                await self.back_off()

    def _request(self, topic_partition: TopicPartition, batch: bytes) -> ProduceRequest:
        topic, partition = topic_partition
        return ProduceRequest(
            acks=self.acks,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self.topic_ids[topic],
                    partition_data=[PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )

    def _settle(self, sent: Sent, part: PartitionProduceResponse) -> bool:
        """Takes down the answer; False if the batch must be sent again."""
        code = ErrorCode(part.error_code)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            sent.acknowledged = True
            return True
        if code is not ErrorCode.NONE:
            self.world.note(self.name, f"{sent.topic_partition} {code.name}")
            if not code.retriable:
                # Out of order, too: all before this batch was acknowledged, so somebody has lost it.
                self.checker.fail(f"{sent.topic_partition}: {self.name} got {code.name} ({part.error_message}): {sent}")
            return False
        sent.acknowledged = True
        if self.acks == ACKS_ALL and part.base_offset != _UNKNOWN_OFFSET:
            self.checker.acknowledged(sent.topic_partition, part.base_offset, sent.crc)
        return True
