"""Simulated consumers: each reads whole partitions from their start and shows everything it is given to the checker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.records.record import iter_batches
from tidelog.testing.sim.clients import ClusterClient
from tidelog.testing.sim.ledger import BatchId
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.testing.sim.checker import Checker
    from tidelog.testing.sim.world import World
    from tidelog.types import TopicPartition
    from tidelog.wire.messages.fetch import FetchResponse, PartitionData

_MAX_WAIT_MS = 500
_MAX_BYTES = 1 << 16


class SimConsumer(ClusterClient):
    def __init__(
        self, world: World, checker: Checker, name: str, brokers: Sequence[int], partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(world, checker, name, brokers)
        self.positions = dict.fromkeys(partitions, 0)

    def start(self) -> None:
        for topic_partition in self.positions:
            self.loop.create_task(self._read(topic_partition))

    async def _read(self, topic_partition: TopicPartition) -> None:
        while not self.stopping:
            leader, epoch = await self.leader(topic_partition)
            try:
                reply: FetchResponse = await self.ask(leader, self._request(topic_partition, epoch))
            except PeerUnreachable:
                self.forget(topic_partition)
                await self.back_off()
                continue
            if reply.error_code or not reply.responses:
                self.forget(topic_partition)
                await self.back_off()
                continue
            data = reply.responses[0].partitions[0]
            if data.error_code:
                self._refused(topic_partition, ErrorCode(data.error_code))
                await self.back_off()
            else:
                self._take(topic_partition, data)

    def _request(self, topic_partition: TopicPartition, epoch: int) -> FetchRequest:
        topic, partition = topic_partition
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=epoch,
            fetch_offset=self.positions[topic_partition],
            partition_max_bytes=_MAX_BYTES,
        )
        return FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            topics=[FetchTopic(topic=topic, topic_id=self.topic_ids[topic], partitions=[wanted])],
        )

    def _refused(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        self.world.note(self.name, f"{topic_partition} {code.name}")
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            position, promised = self.positions[topic_partition], self.checker.ledger(topic_partition).end_offset
            self.checker.fail(f"{topic_partition}: no offset {position} for a reader, {promised} were promised")
        self.forget(topic_partition)

    def _take(self, topic_partition: TopicPartition, data: PartitionData) -> None:
        promised = self.checker.ledger(topic_partition).end_offset
        if data.high_watermark > promised:
            self.checker.fail(f"{topic_partition}: a reader is told {data.high_watermark}, {promised} were promised")
        if not data.records:
            return
        assert isinstance(data.records, memoryview)
        for header, _ in iter_batches(data.records):
            self.checker.consumed(topic_partition, BatchId.of(header))
            self.positions[topic_partition] = header.next_offset
