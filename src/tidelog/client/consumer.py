"""Reads records from partitions of one's own choosing, in order, from any point on, for ever.

    async with Consumer("localhost:9092") as consumer:
        await consumer.assign_topics(["orders"], OffsetSpec.earliest())
        async for record in consumer:
            print(record.offset, record.value)

The iteration waits for more when it has read everything; leave it with `break`. It goes on by itself when brokers
restart or leaders move. What it cannot get over (damaged records, an offset that is gone, missing rights) it raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Self

from tidelog.client.background import Background
from tidelog.client.cluster import Cluster
from tidelog.client.config import ConsumerConfig
from tidelog.client.errors import (
    BadReply,
    ClientError,
    Closed,
    OffsetOutOfRange,
    check,
    error_code,
    refusal,
    worth_retrying,
)
from tidelog.client.fetching import NEVER_S, ConsumerRecord, FetchPlan, FetchPlanner, PartitionBuffer
from tidelog.client.offsets import OffsetSpec, list_offsets
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import ZERO_TOPIC_ID, BrokerId, Offset, TopicPartition
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from types import TracebackType

__all__ = ["Consumer", "ConsumerRecord"]

log = logging.getLogger(__name__)

_NAMED_FETCH_MAX = 12  # later versions name topics by their id
_RESET_SPECS = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}


class Consumer:
    """For one task at a time. Every partition has one position, which only its own reading moves."""

    def __init__(self, bootstrap: str | Sequence[str], config: ConsumerConfig | None = None) -> None:
        self.config = config or ConsumerConfig()
        self._cluster = Cluster(bootstrap, self.config)
        self._background = Background()
        self._planner = FetchPlanner(self.config.fetch_max_wait_ms / 1000)
        self._buffers: dict[TopicPartition, PartitionBuffer] = {}
        self._ready: deque[ConsumerRecord] = deque()
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connects to the cluster; BrokersUnreachable when no broker answers."""
        await self._cluster.start()
        self._background.start(self._run(), "tidelog consumer")

    async def close(self) -> None:
        self._closed = True
        await self._background.close()
        await self._cluster.close()
        self._arrived.set()

    async def assign(self, starts: Mapping[TopicPartition, OffsetSpec | int]) -> None:
        """Reads these partitions from now on, and no others, each from its start; an int is an offset."""
        self._check_open()
        specs = {partition: start for partition, start in starts.items() if isinstance(start, OffsetSpec)}
        for topic in {partition.topic for partition in starts}:
            await self._cluster.topic(topic)
        found = await self._resolve(specs)
        buffers: dict[TopicPartition, PartitionBuffer] = {}
        for partition, start in starts.items():
            buffer = PartitionBuffer(partition, check_crcs=self.config.check_crcs)
            buffer.seek(found[partition] if isinstance(start, OffsetSpec) else Offset(start))
            buffers[partition] = buffer
        self._buffers = buffers
        self._ready.clear()
        self._wake.set()

    async def assign_topics(self, topics: Iterable[str], start: OffsetSpec) -> None:
        """Reads every partition that the topics have now."""
        self._check_open()
        found = [await self._cluster.topic(topic) for topic in topics]
        await self.assign(
            {TopicPartition(topic.name, partition.index): start for topic in found for partition in topic.partitions}
        )

    async def seek(self, partition: TopicPartition, start: OffsetSpec | int) -> None:
        """Goes on reading the partition from another place."""
        buffer = self._buffers[partition]
        offset = (
            (await self._resolve({partition: start}))[partition] if isinstance(start, OffsetSpec) else Offset(start)
        )
        buffer.seek(offset)
        self._ready = deque(record for record in self._ready if (record.topic, record.partition) != partition)
        self._error = None
        self._wake.set()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._buffers)

    def position(self, partition: TopicPartition) -> Offset:
        """The offset of the partition's next record to be returned."""
        for record in self._ready:
            if (record.topic, record.partition) == partition:
                return Offset(record.offset)
        return self._buffers[partition].position

    def high_watermark(self, partition: TopicPartition) -> Offset | None:
        """The partition's end as the last fetch saw it, None before the first."""
        return self._buffers[partition].high_watermark

    async def poll(self, timeout_s: float | None = None, max_records: int | None = None) -> list[ConsumerRecord]:
        """Waits for records and returns some, all of them in order per partition.

        An empty list: the time is up, or a position moved over something that holds no records.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        if self._ready:
            return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    self._check_open()
                    self._arrived.clear()
                    buffer = next((buffer for buffer in self._buffers.values() if buffer.waiting), None)
                    if buffer is not None:
                        return self._take(buffer, limit)
                    if self._error is not None:
                        raise self._error
                    await self._arrived.wait()
        return []

    def _take(self, buffer: PartitionBuffer, limit: int) -> list[ConsumerRecord]:
        was_fetchable = buffer.fetchable
        records = buffer.take(limit)
        if buffer.fetchable and not was_fetchable:
            self._wake.set()
        # To the end of the line, so that a busy partition does not keep the others waiting.
        self._buffers[buffer.partition] = self._buffers.pop(buffer.partition)
        return records

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        while not self._ready:
            self._ready.extend(await self.poll())
        return self._ready.popleft()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the consumer is closed")

    async def _resolve(self, specs: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, Offset]:
        """A time after the last record means the end."""
        found = await list_offsets(self._cluster, specs)
        missing = {partition: OffsetSpec.latest() for partition, offset in found.items() if offset is None}
        ends = await list_offsets(self._cluster, missing) if missing else {}
        offsets = {partition: offset or ends[partition] for partition, offset in found.items()}
        return {partition: offset.offset for partition, offset in offsets.items() if offset is not None}

    async def _run(self) -> None:
        """Keeps one fetch in flight to every broker that leads something of ours, until cancelled."""
        try:
            while True:
                self._wake.clear()
                now_s = asyncio.get_running_loop().time()
                for plan in self._planner.plan(self._buffers.values(), self._leader_of, now_s):
                    self._background.start(self._fetch(plan), f"tidelog fetch from broker {plan.broker}")
                next_s = self._planner.next_due_s(self._buffers.values(), now_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if next_s is None else next_s - now_s):
                        await self._wake.wait()
        except Exception as error:
            log.exception("the consumer cannot go on")
            self._fail(error)

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        leader = self._cluster.metadata.leader_of(partition)
        if leader is None:
            self._refresh()
        return leader.id if leader is not None else None

    async def _fetch(self, plan: FetchPlan) -> None:
        generations = [buffer.generation for buffer in plan.buffers]
        empty = True
        try:
            answers = await self._ask(plan)
            for buffer, generation in zip(plan.buffers, generations, strict=True):
                if buffer.generation == generation and buffer.partition in answers:
                    empty &= not self._settle(buffer, answers[buffer.partition])
        except (ClientError, BrokerError) as error:
            if worth_retrying(error) or isinstance(error, BadReply):
                for buffer in plan.buffers:
                    self._delay(buffer, error)
            else:
                self._fail(error)
        except Exception as error:
            log.exception("a fetch failed for no good reason")
            self._fail(error)
        finally:
            self._planner.finished(plan, empty=empty, now_s=asyncio.get_running_loop().time())
            self._wake.set()

    async def _ask(self, plan: FetchPlan) -> dict[TopicPartition, PartitionData]:
        connection = await self._cluster.connection(plan.broker)
        request = self._request(plan)
        limit = _NAMED_FETCH_MAX if any(topic.topic_id == ZERO_TOPIC_ID for topic in request.topics) else None
        names = {topic.topic_id: topic.topic for topic in request.topics}
        reply = await connection.send(request, FetchResponse, limit=limit)
        check(reply.error_code, about="fetching")
        return {
            TopicPartition(topic.topic or names.get(topic.topic_id, ""), answer.partition_index): answer
            for topic in reply.responses
            for answer in topic.partitions
        }

    def _request(self, plan: FetchPlan) -> FetchRequest:
        metadata = self._cluster.metadata
        topics: dict[str, list[FetchPartition]] = {}
        for buffer in plan.buffers:
            known = metadata.partition(buffer.partition)
            topics.setdefault(buffer.partition.topic, []).append(
                FetchPartition(
                    partition=buffer.partition.partition,
                    current_leader_epoch=known.leader_epoch if known is not None else -1,
                    fetch_offset=buffer.fetch_offset,
                    partition_max_bytes=self.config.max_partition_fetch_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=0 if plan.partial else self.config.fetch_max_wait_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            topics=[
                FetchTopic(topic=name, topic_id=metadata.topic_id(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def _settle(self, buffer: PartitionBuffer, answer: PartitionData) -> bool:
        """Takes in one partition's part of an answer; true if it brought records."""
        code = error_code(answer.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(buffer)
        elif code:
            error = refusal(answer.error_code, about=str(buffer.partition))
            if not code.retriable:
                self._fail(error)
            else:
                self._delay(buffer, error)
        else:
            buffer.high_watermark = Offset(answer.high_watermark)
            buffer.failures = 0
            if answer.records and buffer.add(memoryview(answer.records)):  # type: ignore[arg-type]
                self._arrived.set()
                return True
        return False

    def _out_of_range(self, buffer: PartitionBuffer) -> None:
        if buffer.waiting:
            return  # the application reads on; the question will come up again if it is still one by then
        spec = _RESET_SPECS.get(self.config.auto_offset_reset)
        if spec is None:
            self._fail(OffsetOutOfRange(buffer.partition, buffer.fetch_offset))
            buffer.not_before_s = NEVER_S
            return
        log.warning(
            "%s: offset %d is gone, going on from the %s",
            buffer.partition,
            buffer.fetch_offset,
            self.config.auto_offset_reset,
        )
        buffer.lose(spec)
        self._background.start(self._find(buffer, spec), f"tidelog offsets of {buffer.partition}")

    async def _find(self, buffer: PartitionBuffer, spec: OffsetSpec) -> None:
        generation = buffer.generation
        try:
            found = await self._resolve({buffer.partition: spec})
        except (ClientError, BrokerError) as error:
            self._fail(error)
            return
        if buffer.generation == generation:
            buffer.seek(found[buffer.partition])
            self._wake.set()

    def _delay(self, buffer: PartitionBuffer, error: Exception) -> None:
        level = logging.WARNING if buffer.failures == 0 else logging.DEBUG
        log.log(level, "%s: fetching failed, trying again: %s", buffer.partition, error)
        wait_s = self._cluster.backoff.delay_s(buffer.failures)
        buffer.not_before_s = asyncio.get_running_loop().time() + wait_s
        buffer.failures += 1
        self._refresh()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._arrived.set()

    def _refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._background.start(self._refresh_topics(), "tidelog consumer metadata")

    async def _refresh_topics(self) -> None:
        try:
            await self._cluster.refresh({partition.topic for partition in self._buffers})
        except (ClientError, BrokerError) as error:
            log.debug("refreshing metadata failed: %s", error)
        # A leader that is missing for longer must not become a busy loop.
        await asyncio.sleep(self._cluster.backoff.delay_s(0))
        self._wake.set()
