"""Sends records: gathered into batches, to the leader of each partition, again when it fails, and in order.

    async with Producer("localhost:9092") as producer:
        delivery = await producer.send("orders", b"value", key=b"customer-17")
        print((await delivery).offset)

`send` returns as soon as the record is in the buffer; the future it gives is done when the broker has stored it, or
holds the exception that says why not. Records of one partition are stored in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from tidelog.client.accumulator import Accumulator
from tidelog.client.background import Background
from tidelog.client.backoff import Deadline
from tidelog.client.cluster import Cluster
from tidelog.client.config import ProducerConfig
from tidelog.client.errors import Closed, RecordTooLarge, TimedOut, refusal
from tidelog.client.partitioner import StickyPartitioner, partition_for_key
from tidelog.client.sender import Receipt, RecordMetadata, Sender
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.records.build import record_size_max
from tidelog.records.header import HEADER_SIZE
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tidelog.client.metadata import TopicMetadata
    from tidelog.clock import Clock

__all__ = ["Producer", "RecordMetadata"]


class Producer:
    """One per program is enough: it may be shared by all tasks of an event loop."""

    def __init__(
        self, bootstrap: str | Sequence[str], config: ProducerConfig | None = None, *, clock: Clock | None = None
    ) -> None:
        self.config = config or ProducerConfig()
        self._clock = clock or SystemClock()
        self._cluster = Cluster(bootstrap, self.config)
        self._accumulator: Accumulator[Receipt] = Accumulator(
            batch_bytes=self.config.batch_size,
            linger_s=self.config.linger_ms / 1000,
            buffer_bytes=self.config.buffer_memory,
        )
        self._background = Background()
        self._sender = Sender(self._cluster, self._accumulator, self.config, self._background)
        self._sticky = StickyPartitioner()
        self._available: dict[str, tuple[TopicMetadata, Sequence[int]]] = {}
        self._flushes = 0
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever was cancelled does not want to wait for the network; everyone else wants their records stored.
        await self.close(flush=not isinstance(error, asyncio.CancelledError | KeyboardInterrupt))

    async def start(self) -> None:
        """Connects to the cluster; BrokersUnreachable when no broker answers."""
        await self._cluster.start()
        self._background.start(self._sender.run(), "tidelog producer")

    async def close(self, *, flush: bool = True) -> None:
        """Delivers what is buffered (unless told not to), then ends every task and connection."""
        if self._closed:
            return
        self._closed = True
        try:
            if flush:
                await self.flush()
        finally:
            await self._background.close()
            self._sender.abandon(Closed("the producer was closed before the record was delivered"))
            await self._cluster.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Takes a record into the buffer, waiting for room in it if need be, and gives the future of its delivery.

        Without `partition`, records of the same key go to the same partition, as with every Kafka client.
        """
        if self._closed:
            raise Closed("the producer is closed")
        self._sender.check_running()
        headers = tuple(headers)
        size = record_size_max(key, value, headers)
        if HEADER_SIZE + size > self.config.max_request_size:
            raise RecordTooLarge(
                f"the record takes up to {HEADER_SIZE + size} bytes, "
                f"more than max_request_size = {self.config.max_request_size}"
            )
        metadata = self._cluster.cached_topic(topic) or await self._look_up(topic)
        if not self._accumulator.has_room(size):
            await self._wait_for_room(size)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        timestamp = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        chosen = self._choose(metadata, key, size) if partition is None else await self._existing(metadata, partition)
        target = TopicPartition(topic, chosen)
        receipt = Receipt(future, timestamp)
        if self._accumulator.add(target, timestamp, key, value, headers, receipt, loop.time(), size):
            self._sender.wake()
            await asyncio.sleep(
                0
            )  # a caller that never waits would otherwise starve the sender until the buffer is full
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """As `send`, and waits until the record is stored. Slow for many records: each waits for its own round trip."""
        return await (
            await self.send(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        )

    async def flush(self) -> None:
        """Sends everything at once and waits until each record sent so far is stored or has failed."""
        pending = [receipt.future for receipt in self._accumulator.last_tokens()]
        if not pending:
            return
        self._flushes += 1
        self._accumulator.flushing = True
        self._sender.wake()
        try:
            await asyncio.wait(pending)
        finally:
            self._flushes -= 1
            self._accumulator.flushing = self._flushes > 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are neither stored nor failed yet."""
        return self._accumulator.used_bytes

    async def _look_up(self, topic: str) -> TopicMetadata:
        return await self._cluster.topic(topic, Deadline(self.config.max_block_ms), create=True)

    async def _wait_for_room(self, size: int) -> None:
        self._sender.wake()
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                while not self._accumulator.has_room(size):
                    await self._sender.wait_for_space()
        except TimeoutError:
            raise TimedOut(
                f"no room for the record within max_block_ms = {self.config.max_block_ms}: buffer_memory = "
                f"{self.config.buffer_memory} is full of records that the brokers have not taken yet"
            ) from None
        if self._closed:
            raise Closed("the producer was closed meanwhile")

    def _choose(self, metadata: TopicMetadata, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_for_key(key, len(metadata.partitions))
        available = self._available_partitions(metadata)
        chosen = self._sticky.choose(metadata.name, available)
        if not self._accumulator.room_in_batch(TopicPartition(metadata.name, chosen), size):
            self._sticky.move_on(metadata.name, available)
            chosen = self._sticky.choose(metadata.name, available)
        return chosen

    async def _existing(self, metadata: TopicMetadata, partition: int) -> int:
        if metadata.partition(partition) is None:
            await self._cluster.refresh([metadata.name])  # it may have been added a moment ago
            metadata = self._cluster.metadata.topics.get(metadata.name, metadata)
            if metadata.partition(partition) is None:
                raise refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no partition {partition}, it has {len(metadata.partitions)}",
                    f"topic {metadata.name}",
                )
        return partition

    def _available_partitions(self, metadata: TopicMetadata) -> Sequence[int]:
        """Those with a leader, if any has one; worked out once per change of the metadata."""
        known = self._available.get(metadata.name)
        if known is not None and known[0] is metadata:
            return known[1]
        led = [partition.index for partition in metadata.partitions if partition.leader >= 0]
        available: Sequence[int] = range(len(metadata.partitions)) if len(led) in {0, len(metadata.partitions)} else led
        self._available[metadata.name] = (metadata, available)
        return available
