"""Sends records: gathered into batches, to the leader of each partition, again when it fails, and in order.

    async with Producer("localhost:9092", linger_ms=5) as producer:
        delivery = await producer.send("orders", b"value", key=b"customer-17")
        print((await delivery).offset)

`send` returns as soon as the record is in the buffer; the future it gives is done when the broker has stored it, or
holds the exception that says why not. Records of one partition are stored in the order in which they were sent.

With a `transactional_id`, records are sent in transactions, of which readers see everything or nothing:

    async with producer.transaction():
        await producer.send("orders", b"value")
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self

from tidelog.client.accumulator import Accumulator
from tidelog.client.arrow_sending import Outlet, send_table
from tidelog.client.background import Background
from tidelog.client.backoff import Deadline
from tidelog.client.cluster import Cluster
from tidelog.client.config import ProducerConfig
from tidelog.client.errors import Closed, InvalidState, RecordTooLarge, TimedOut, refusal
from tidelog.client.partitioner import StickyPartitioner, named_partitioner, partition_for_key
from tidelog.client.sender import Delivery, Receipt, RecordMetadata, Sender
from tidelog.client.serializing import K, V, Writer
from tidelog.client.transactions.book import Book
from tidelog.client.transactions.coordination import Coordination
from tidelog.client.transactions.transactions import Transactions
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.records.build import record_size_max
from tidelog.records.header import HEADER_SIZE
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Unpack

    from pyarrow import RecordBatch, Table  # type: ignore[import-untyped]

    from tidelog.client.accumulator import Batch
    from tidelog.client.arrow_sending import BatchDelivery
    from tidelog.client.groups.member import GroupMetadata
    from tidelog.client.metadata import TopicMetadata
    from tidelog.client.metrics import ClientMetrics
    from tidelog.client.offsets import OffsetAndMetadata
    from tidelog.client.partitioner import Partitioner, PartitionerName
    from tidelog.client.producer_settings import ProducerSettings
    from tidelog.client.serializing import Serializer
    from tidelog.client.transactions.handles import PreparedTransaction, TransactionHandle, TransactionPart
    from tidelog.clock import Clock

__all__ = ["Producer", "RecordMetadata"]


class Producer(Generic[K, V]):
    """One per program is enough: it may be shared by all tasks of an event loop, and so is a transaction of its."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | ProducerConfig,
        config: ProducerConfig | None = None,
        *,
        key_serializer: Serializer[K] | Callable[[K], bytes] | None = None,
        value_serializer: Serializer[V] | Callable[[V], bytes] | None = None,
        partitioner: PartitionerName | Partitioner | None = None,
        keep_prepared: bool = False,
        joining: TransactionHandle | None = None,
        clock: Clock | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Settings are keywords, a config, or both: keywords win.

        `keep_prepared`: a transaction that an earlier life of this producer has prepared is not aborted when it starts;
        it is then in `prepared`, and `complete` ends it. `joining` is what `join_transaction` gives it.
        """
        if isinstance(bootstrap, ProducerConfig):
            config = bootstrap
            bootstrap = config.bootstrap_servers
        if joining is not None:
            settings["transactional_id"] = joining.transactional_id
        self.config = replace(config or ProducerConfig(), **settings)
        self._clock = clock or SystemClock()
        self._cluster = Cluster(bootstrap, self.config)
        self._accumulator: Accumulator[Receipt] = Accumulator(
            batch_bytes=self.config.batch_size,
            linger_s=self.config.linger_ms / 1000,
            buffer_bytes=self.config.buffer_memory,
        )
        self._background = Background()
        coordination: Coordination | None = None
        if self.config.transactional_id is not None:
            coordination = Coordination(self._cluster, self.config, Book(self.config.transactional_id))
        self._sender = Sender(self._cluster, self._accumulator, self.config, self._background, coordination)
        self._transactions: Transactions | None = None
        if coordination is not None:
            self._transactions = Transactions(
                self.config, coordination, self._accumulator, self._sender, self._background, self.flush
            )
        self._keep_prepared = keep_prepared
        self._handle = joining
        self._writers = (
            None if key_serializer is None else Writer(key_serializer, "key"),
            None if value_serializer is None else Writer(value_serializer, "value"),
        )
        self._record_bytes_max = self.config.max_request_size - HEADER_SIZE
        self._raw = key_serializer is None and value_serializer is None
        chosen = partitioner or self.config.partitioner
        self._partitioner = named_partitioner(chosen) if isinstance(chosen, str) else chosen
        self._sticky = StickyPartitioner()
        self._available: dict[str, tuple[TopicMetadata, Sequence[int]]] = {}
        self._spots: dict[str, tuple[TopicMetadata, TopicPartition]] = {}
        """Where the last keyless record of each topic went, if no partitioner chose: the next goes there, too."""
        self._flushes = 0
        self._closed = False

    @classmethod
    def join_transaction(
        cls,
        bootstrap: str | Sequence[str] | ProducerConfig,
        handle: TransactionHandle,
        config: ProducerConfig | None = None,
        *,
        key_serializer: Serializer[K] | Callable[[K], bytes] | None = None,
        value_serializer: Serializer[V] | Callable[[V], bytes] | None = None,
        partitioner: PartitionerName | Partitioner | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> Producer[K, V]:
        """A producer that writes into a transaction of another process, to the partitions that the handle names.

        Call `leave` at the end, and send what it gives to that process, which alone commits or aborts.
        """
        return cls(
            bootstrap,
            config,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            joining=handle,
            **settings,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever was cancelled does not want to wait for the network; everyone else wants their records stored.
        await self.close(flush=not isinstance(error, asyncio.CancelledError | KeyboardInterrupt))

    async def start(self) -> None:
        """Connects to the cluster; BrokersUnreachable when no broker answers. Takes the transactional id over."""
        await self._cluster.start()
        self._background.start(self._sender.run(), "tidelog producer")
        if self._transactions is not None:
            try:
                await self._transactions.start(self._handle, keep_prepared=self._keep_prepared)
            except BaseException:
                await self.close(flush=False)
                raise

    async def close(self, *, flush: bool = True) -> None:
        """Delivers what is buffered, or aborts the open transaction; `flush=False` leaves that to time out.

        Then it ends every task and connection.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if flush and self._transactions is not None:
                await self._transactions.abort_open()
            if flush:
                await self.flush()
        finally:
            try:
                await self._background.close()
                if self._transactions is not None:
                    await self._transactions.close()
            finally:
                self._sender.abandon(Closed("the producer was closed before the record was delivered"))
                await self._cluster.close()

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Takes a record into the buffer, waiting for room in it if need be, and gives the future of its delivery.

        Without `partition`, records of the same key go to the same partition, as with every Kafka client.
        """
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        changed = self._put_now(future, topic, value, key, headers, timestamp_ms, partition)
        if changed is None:
            await self._put(future, topic, value, key, headers, timestamp_ms, partition)
        elif changed:
            # A caller that never waits would otherwise starve the sender until the buffer is full.
            await asyncio.sleep(0)
        return future

    async def _put(
        self,
        future: Delivery,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
        partition: int | None,
    ) -> None:
        """As `send`, with a future of the caller's."""
        while self._put_now(future, topic, value, key, headers, timestamp_ms, partition) is None:
            await self._make_way(topic, value, key, headers, partition)

    def _put_now(
        self,
        future: Delivery,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
        partition: int | None,
    ) -> bool | None:
        """Takes the record in if nothing has to be waited for, or gives None; true if that woke the sender."""
        if self._closed:
            raise Closed("the producer is closed")
        self._sender.check_running()
        metadata = self._cluster.cached_topic(topic)
        if metadata is None or not (self._raw or self._serializers_ready(topic)):
            return None
        headers = tuple(headers)
        # Every call shows here, so that the usual way has few.
        key_bytes: Any = key
        value_bytes: Any = value
        if not self._raw:
            key_bytes, value_bytes = self._serialized(topic, key, value)
        size = record_size_max(key_bytes, value_bytes, headers)
        if size > self._record_bytes_max:
            raise self._too_large(size)
        accumulator = self._accumulator
        if not accumulator.has_room(size):
            return None
        spot = self._spots.get(topic)
        if partition is not None:
            if metadata.partition(partition) is None:
                return None
            target = TopicPartition(topic, partition)
        elif key_bytes is None and spot and spot[0] is metadata and accumulator.room_in_batch(spot[1], size):
            target = spot[1]
        else:
            target = TopicPartition(topic, self._choose(metadata, key_bytes, size))
            if key_bytes is None and self._partitioner is None:
                self._spots[topic] = (metadata, target)
        if self._transactions is not None:
            self._transactions.book.check_may_write(target)
        timestamp = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        now_s = asyncio.get_running_loop().time()
        receipt = Receipt(future, timestamp)  # type: ignore[arg-type] # it is settled like asyncio's
        if accumulator.add(target, timestamp, key_bytes, value_bytes, headers, receipt, now_s, size):
            self._sender.wake()
            return True
        return False

    async def send_and_wait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """As `send`, and waits until the record is stored. Slow for many records: each waits for its own round trip."""
        return await (
            await self.send(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        )

    async def send_batch(self, topic: str | None, table: RecordBatch | Table) -> asyncio.Future[BatchDelivery]:
        """Sends every row of a pyarrow table or record batch, with the columns of Spark's Kafka sink: `value`, and if
        wanted `key`, `headers`, `partition` and `timestamp`; also `topic`, if none is named here.

        It returns when all rows are in the buffer, and gives one future for all of them. Keys and values are bytes or
        text, which no serializer sees. Rows go out at once, in batches as large as max_request_size allows.
        """
        if self._closed:
            raise Closed("the producer is closed")
        outlet = Outlet(
            metadata=self._topic,
            choose=self._choose,
            asks_for_every_key=self._partitioner is not None,
            enqueue=self._enqueue,
            now_ms=self._clock.now_ms,
            batch_bytes_max=self.config.max_request_size,
        )
        return await send_table(outlet, topic, table)

    async def flush(self) -> None:
        """Sends everything at once and waits until each record sent so far is stored or has failed."""
        last: list[Any] = [receipt.future for receipt in self._accumulator.last_tokens()]
        pending = [each if isinstance(each, asyncio.Future) else _followed(each) for each in last]
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

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, counted."""
        return self._cluster.metrics()

    async def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has."""
        return len((self._cluster.cached_topic(topic) or await self._look_up(topic)).partitions)

    # --- transactions ---

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """`async with producer.transaction():` commits at the end, and aborts when an exception leaves the block."""
        return self._transactional().transaction()

    async def begin(self) -> None:
        await self._transactional().begin()

    async def commit(self) -> None:
        """Stores what is buffered, and lets readers see all of the transaction.

        TransactionFailed: something of it is lost, abort and do it again. TimedOut: it may be done, call it again.
        """
        await self._transactional().commit()

    async def abort(self) -> None:
        """Readers of committed records will never see what the transaction wrote."""
        await self._transactional().abort()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata | str
    ) -> None:
        """Has the group go on from these offsets if the transaction is committed: `consumer.positions()` and
        `consumer.group_metadata()`, so that what was read and what was written for it count together, or not at all."""
        from tidelog.client.groups.member import GroupMetadata  # noqa: PLC0415 - few need it

        named = GroupMetadata(group) if isinstance(group, str) else group
        await self._transactional().send_offsets(offsets, named)

    async def prepare(self) -> PreparedTransaction:
        """Stores what is buffered. From here on the transaction can only be committed or aborted, here or elsewhere.

        Without `transaction_two_phase_commit_enable` it can still time out, and is aborted then.
        """
        return await self._transactional().prepare()

    async def renew(self) -> None:
        """Takes the transactional id over anew, once what was prepared has been ended elsewhere. If it has not, it is
        aborted: whoever decides must be done by then."""
        await self._transactional().renew()

    @property
    def prepared(self) -> PreparedTransaction | None:
        """What is prepared and waits for its outcome."""
        return None if self._transactions is None else self._transactions.book.prepared

    async def complete(self, prepared: PreparedTransaction | None) -> bool:
        """Commits what is prepared if it is the one that was decided on, and else aborts it; true if it was."""
        return await self._transactional().complete(prepared)

    async def transaction_handle(self, partitions: Iterable[TopicPartition]) -> TransactionHandle:
        """Lends partitions to a writer in another process, until `include` is called with what it did."""
        return await self._transactional().lend(partitions)

    def include(self, part: TransactionPart) -> None:
        """Takes back what another process has done in the transaction. Commit when all have come back."""
        self._transactional().take_back(part)

    async def leave(self) -> TransactionPart:
        """Ends this process's part in another's transaction: everything is stored. Its owner `include`s the result."""
        return await self._transactional().leave(self._handle)

    def _lose(self, error: Exception) -> None:
        """A record that was meant for the transaction could not be sent, so that it must not be committed."""
        if self._transactions is not None:
            self._transactions.lose(error)

    def _transactional(self) -> Transactions:
        if self._closed:
            raise Closed("the producer is closed")
        if self._transactions is None:
            raise InvalidState("the producer has no transactional_id: give it one to use transactions")
        return self._transactions

    # ---

    async def _make_way(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
    ) -> None:
        """Waits for whatever keeps the record from being taken in."""
        metadata = await self._topic(topic)
        for writer in self._writers:
            if writer is not None and not writer.ready_for(topic):
                await writer.prepare(topic)
        if partition is not None:
            await self._existing(metadata, partition)
        size = record_size_max(*self._serialized(topic, key, value), tuple(headers))
        if not self._accumulator.has_room(size):
            await self._wait_for_room(size)

    def _too_large(self, size: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"the record takes up to {HEADER_SIZE + size} bytes, "
            f"more than max_request_size = {self.config.max_request_size}"
        )

    def _serializers_ready(self, topic: str) -> bool:
        return all(writer is None or writer.ready_for(topic) for writer in self._writers)

    def _serialized(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        if self._raw:
            return key, value
        write_key, write_value = self._writers
        return (
            key if write_key is None else write_key.write(topic, key),
            value if write_value is None else write_value.write(topic, value),
        )

    async def _enqueue(self, batch: Batch[Receipt]) -> None:
        self._sender.check_running()
        if not self._accumulator.has_room(batch.size):
            await self._wait_for_room(batch.size)
        if self._closed:
            raise Closed("the producer is closed")
        if self._transactions is not None:
            self._transactions.book.check_may_write(batch.partition)
        self._accumulator.add_batch(batch)
        self._sender.wake()
        await asyncio.sleep(0)  # as in `send`

    async def _topic(self, topic: str) -> TopicMetadata:
        return self._cluster.cached_topic(topic) or await self._look_up(topic)

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
        if self._partitioner is not None:
            return self._chosen_by_partitioner(self._partitioner, metadata, key)
        if key is not None:
            return partition_for_key(key, len(metadata.partitions))
        available = self._available_partitions(metadata)
        chosen = self._sticky.choose(metadata.name, available)
        if not self._accumulator.room_in_batch(TopicPartition(metadata.name, chosen), size):
            self._sticky.move_on(metadata.name, available)
            chosen = self._sticky.choose(metadata.name, available)
        return chosen

    def _chosen_by_partitioner(self, partitioner: Partitioner, metadata: TopicMetadata, key: bytes | None) -> int:
        count = len(metadata.partitions)
        chosen = partitioner(metadata.name, key, count, self._available_partitions(metadata))
        if not 0 <= chosen < count:
            raise ValueError(f"the partitioner chose partition {chosen} of {metadata.name}, which has {count}")
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


def _followed(future: concurrent.futures.Future[RecordMetadata]) -> asyncio.Future[RecordMetadata]:
    """A future for this loop. What went wrong is for whoever has the other one: asyncio need not report it."""
    followed = asyncio.wrap_future(future)
    followed.add_done_callback(lambda done: done.cancelled() or done.exception())
    return followed
