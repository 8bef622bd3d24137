"""Reads records: as a member of a group that shares topics, or from partitions of one's own choosing.

    async with Consumer("localhost:9092", group_id="billing", topics=["orders"]) as consumer:
        async for record in consumer:
            print(record.offset, record.value)

The iteration waits for more when it has read everything; leave it with `break`. It goes on by itself when brokers
restart or leaders move. What it cannot get over (damaged records, an offset that is gone, missing rights) it raises.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, Unpack, cast

from tidelog.client.arrow_batches import BATCH_BYTES_MAX, ArrowTaker
from tidelog.client.background import Background
from tidelog.client.cluster import Cluster
from tidelog.client.config import ConsumerConfig
from tidelog.client.divergence import UNKNOWN
from tidelog.client.errors import ClientError, Closed, NotReadable, PositionUnknown
from tidelog.client.fetcher import Fetcher
from tidelog.client.fetching import ConsumerRecord, K, PartitionBuffer, V
from tidelog.client.groups.participant import Participant, Reading, Wish
from tidelog.client.offsets import OffsetAndMetadata, OffsetSpec, list_offsets
from tidelog.errors import BrokerError
from tidelog.types import Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from pyarrow import RecordBatch  # type: ignore[import-untyped]

    from tidelog.client.backoff import Deadline
    from tidelog.client.consumer_settings import ConsumerSettings
    from tidelog.client.groups.listener import RebalanceListener
    from tidelog.client.groups.member import GroupMetadata
    from tidelog.client.metrics import ClientMetrics

__all__ = ["Consumer", "ConsumerRecord"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_CLOSE_TIMEOUT_S: Final = 30.0
_CLOSE_WHEN_CANCELLED_S: Final = 2.0


class Consumer(Generic[K, V]):
    """For one task at a time. Every partition has one position, which only its own reading moves."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | ConsumerConfig,
        config: ConsumerConfig | None = None,
        *,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Settings are keywords, a config, or both: keywords win. `topics` or `pattern` subscribe when it starts."""
        if isinstance(bootstrap, ConsumerConfig):
            config = bootstrap
            bootstrap = config.bootstrap_servers
        self.config = replace(config or ConsumerConfig(), **settings)
        self._wish = _wish(topics, pattern)
        self._listener = listener
        self._deserializers = (key_deserializer, value_deserializer)
        self._raw = key_deserializer is None and value_deserializer is None
        self._cluster = Cluster(bootstrap, self.config)
        self._background = Background()
        self._group: Participant | None = None
        if self.config.group_id is not None:
            reading = Reading(self.positions, self._epoch_of, self._take_over, self._give_up, self._call)
            self._group = Participant(self._cluster, self.config, self.config.group_id, self._background, reading)
        self._fetcher = Fetcher(
            self._cluster, self.config, self._background, None if self._group is None else self._group.committed
        )
        self._ready: deque[ConsumerRecord] = deque()
        """Taken out of the buffers for the iteration, not given to the application yet."""
        self._in_hand: Sequence[ConsumerRecord] = ()
        """What the application got last, and has dealt with when it comes for more."""
        self._started = False
        self._closed = False
        self._leaving = False
        """It is closed, but its listener may still commit."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever was cancelled does not want to wait; and what failed in the middle of a record has not dealt with it.
        cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        await self._close(_CLOSE_WHEN_CANCELLED_S if cancelled else _CLOSE_TIMEOUT_S, in_hand_done=error is None)

    async def start(self) -> None:
        """Connects to the cluster; BrokersUnreachable when no broker answers."""
        try:
            await self._cluster.start()
            self._background.start(self._fetcher.run(), "tidelog consumer")
            if self._group is not None:
                self._group.start()
            self._started = True
            if self._wish.topics or self._wish.pattern is not None:
                self._subscribe(self._wish, self._listener)
        except BaseException:
            await self._close(0.0, in_hand_done=False)
            raise

    async def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """In a group: commits if that is to happen by itself, and leaves. Then ends every task and connection."""
        await self._close(timeout_s, in_hand_done=True)

    async def _close(self, timeout_s: float, *, in_hand_done: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._fetcher.arrived.set()
        limit = asyncio.timeout(timeout_s)
        try:
            if self._group is not None and self._started and timeout_s:
                self._leaving = True
                async with limit:
                    await self._group.unsubscribe(self._positions(in_hand_done=in_hand_done))
        except TimeoutError:
            if not limit.expired():
                raise  # a listener's own
            log.warning("leaving the group took longer than %g s, its coordinator will notice", timeout_s)
        finally:
            self._leaving = False
            try:
                if self._group is not None:
                    await self._group.close()
            finally:
                try:
                    await self._background.close()
                finally:
                    await self._cluster.close()

    # What to read

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Shares these topics with the other members of the group; replaces an earlier subscription.

        A `pattern` has to fit the whole name. In the newer group protocol the broker matches it, as RE2 does.
        """
        self._check_open()
        wish = _wish(topics, pattern)
        if not wish.topics and wish.pattern is None:
            raise ValueError("name topics or give a pattern; use unsubscribe() to read nothing")
        self._subscribe(wish, listener)

    def _subscribe(self, wish: Wish, listener: RebalanceListener | None) -> None:
        group = self._in_group("subscribing")
        if self._fetcher.buffers and not group.subscribed:
            raise ClientError("partitions were assigned by hand: call unsubscribe() before subscribing to topics")
        group.subscribe(wish, listener)

    async def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        self._check_open()
        try:
            if self._group is not None:
                await self._group.unsubscribe(self.positions())
        finally:
            self._give_up(list(self._fetcher.buffers))

    async def assign(self, starts: Mapping[TopicPartition, OffsetSpec | int | None]) -> None:
        """Reads exactly these partitions from now on, each from the place given.

        None, in a group: from its last commit, or where auto_offset_reset says.
        """
        self._check_open()
        if self._group is not None and self._group.subscribed:
            raise ClientError("the group assigns partitions: call unsubscribe() before choosing them by hand")
        specs = {partition: start for partition, start in starts.items() if isinstance(start, OffsetSpec)}
        for topic in {partition.topic for partition in starts}:
            await self._cluster.topic(topic)
        found = await self._fetcher.resolve(specs)
        buffers: dict[TopicPartition, PartitionBuffer] = {}
        for partition, start in starts.items():
            buffer = buffers[partition] = self._fetcher.new_buffer(partition)
            if start is None:
                self._in_group("beginning at the last commit")
                buffer.seek_to_commit()
            else:
                buffer.seek(found[partition] if isinstance(start, OffsetSpec) else Offset(start))
        self._fetcher.buffers = buffers
        self._ready.clear()
        self._fetcher.wake()

    async def assign_topics(self, topics: Iterable[str], start: OffsetSpec | None) -> None:
        """Reads every partition that the topics have now."""
        self._check_open()
        found = [await self._cluster.topic(topic) for topic in topics]
        await self.assign(
            {TopicPartition(topic.name, partition.index): start for topic in found for partition in topic.partitions}
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._fetcher.buffers)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to by name."""
        return self._group.wish.topics if self._group is not None else frozenset()

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives no records of these until they are resumed. Their positions stay, and so does the membership."""
        for partition in partitions:
            self._buffer(partition).paused = True
            self._take_back(partition)

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._buffer(partition).paused = False
        self._fetcher.arrived.set()
        self._fetcher.wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(partition for partition, buffer in self._fetcher.buffers.items() if buffer.paused)

    # Where to read

    async def seek(self, partition: TopicPartition, start: OffsetSpec | int) -> None:
        """Goes on reading the partition from another place: an offset, or what OffsetSpec can say."""
        buffer = self._buffer(partition)
        if isinstance(start, OffsetSpec):
            found = await self._fetcher.resolve({partition: start})
            buffer.seek(found[partition])
        else:
            buffer.seek(Offset(start))
        self._sought([partition])

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """All that are assigned, if none is named."""
        await self._seek_all(partitions, OffsetSpec.earliest())

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """All that are assigned, if none is named."""
        await self._seek_all(partitions, OffsetSpec.latest())

    async def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """To the first record that is not older, or the end; all that are assigned, if none is named."""
        await self._seek_all(partitions, OffsetSpec.at_timestamp(timestamp_ms))

    async def _seek_all(self, partitions: Sequence[TopicPartition], start: OffsetSpec) -> None:
        buffers = {at: self._buffer(at) for at in partitions or self.assignment}
        for partition, offset in (await self._fetcher.resolve(dict.fromkeys(buffers, start))).items():
            buffers[partition].seek(offset)
        self._sought(buffers)

    def _sought(self, partitions: Iterable[TopicPartition]) -> None:
        self._forget_ready(partitions)
        self._in_hand = ()  # rewinding is how the application says that it is not done with them
        self._fetcher.error = None
        self._fetcher.wake()

    def position(self, partition: TopicPartition) -> Offset:
        """The offset of the partition's next record to be returned; PositionUnknown before that was found out."""
        for record in self._ready:
            if (record.topic, record.partition) == partition:
                return Offset(record.offset)
        buffer = self._buffer(partition)
        if buffer.position < 0:
            raise PositionUnknown(f"where {partition} begins is not known yet: ask for records first")
        return buffer.position

    def positions(self) -> dict[TopicPartition, Offset]:
        """Of all assigned partitions whose position is known: what `commit` commits."""
        return self._positions(in_hand_done=True)

    def _positions(self, *, in_hand_done: bool) -> dict[TopicPartition, Offset]:
        found = {at: buffer.position for at, buffer in self._fetcher.buffers.items() if buffer.located}
        for record in reversed([*(() if in_hand_done else self._in_hand), *self._ready]):
            partition = TopicPartition(record.topic, record.partition)
            if partition in found:
                found[partition] = Offset(record.offset)
        return found

    def high_watermark(self, partition: TopicPartition) -> Offset | None:
        """The partition's end as the last fetch saw it, None before the first."""
        return self._buffer(partition).high_watermark

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, counted."""
        return self._cluster.metrics()

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return await self._fetcher.resolve(dict.fromkeys(partitions, OffsetSpec.earliest()))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """With read_committed, the end of what may be read."""
        return await self._fetcher.resolve(dict.fromkeys(partitions, OffsetSpec.latest()))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """The first record that is not older; None if all are."""
        specs = {partition: OffsetSpec.at_timestamp(at_ms) for partition, at_ms in timestamps_ms.items()}
        found = await list_offsets(self._cluster, specs, committed_only=self.config.committed_only)
        return {partition: None if offset is None else offset.offset for partition, offset in found.items()}

    # Records

    async def poll(self, timeout_s: float | None = None, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Waits for records and returns some, all of them in order per partition.

        An empty list: the time is up, or a position moved over something that holds no records.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        records = await self._next_records(timeout_s, limit)
        shown = self._shown(records)
        self._in_hand = records[: len(shown)]
        return shown

    async def poll_by_partition(
        self, timeout_s: float | None = None, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """As `poll`, sorted by partition."""
        found: dict[TopicPartition, list[ConsumerRecord[K, V]]] = {}
        for record in await self.poll(timeout_s, max_records):
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        group = self._group
        if not self._ready or (group is not None and group.attention):
            found: list[ConsumerRecord] = []
            while not found:
                found = await self._next_records(None, self.config.max_poll_records)
            self._ready.extendleft(reversed(found))
        elif group is not None:
            group.presence.seen = True
        record = self._ready.popleft()
        if self._raw:
            self._in_hand = (record,)
            return cast("ConsumerRecord[K, V]", record)
        shown = self._shown([record])[0]
        self._in_hand = (record,)
        return shown

    async def poll_batch(
        self, timeout_s: float | None = None, *, max_bytes: int = BATCH_BYTES_MAX, headers: bool = True
    ) -> RecordBatch:
        """As `poll`, but a pyarrow.RecordBatch with the columns of Spark's Kafka source, `headers` only if wished.

        It holds what waits, keys and values as bytes: batches as they were stored, until it has some `max_bytes`.
        """
        taker = ArrowTaker(self._fetcher, max_bytes=max_bytes, headers=headers)
        for partition in {TopicPartition(record.topic, record.partition) for record in self._ready}:
            self._take_back(partition)
        await self._wait_for(taker.take, timeout_s)
        self._in_hand = taker.first_records
        return taker.finish()

    async def batches(
        self, *, max_bytes: int = BATCH_BYTES_MAX, headers: bool = True
    ) -> AsyncGenerator[RecordBatch, None]:
        """Record batches without end, as `poll_batch` gives them and never empty: `async for batch in ...batches()`."""
        while True:
            batch = await self.poll_batch(max_bytes=max_bytes, headers=headers)
            if batch.num_rows:
                yield batch

    async def _next_records(self, timeout_s: float | None, limit: int) -> list[ConsumerRecord]:
        """As they were stored."""
        return await self._wait_for(lambda: self._take(limit), timeout_s) or []

    async def _wait_for(self, take: Callable[[], T | None], timeout_s: float | None) -> T | None:
        """What `take` finds as soon as it finds something; None when the time is up.

        What the application got before it has dealt with: it would not come for more.
        """
        self._in_hand = ()
        group = self._group
        loop = asyncio.get_running_loop()
        until_s = None if timeout_s is None else loop.time() + timeout_s
        arrived = self._fetcher.arrived
        if group is not None:
            group.presence.inside += 1
        try:
            while True:
                self._check_open()
                arrived.clear()
                if group is not None and group.attention:
                    await group.attend()
                if (taken := take()) is not None:
                    return taken
                if self._fetcher.error is not None:
                    raise self._fetcher.error
                try:
                    async with asyncio.timeout_at(until_s):
                        await arrived.wait()
                except TimeoutError:
                    return None
        finally:
            if group is not None:
                group.presence.inside -= 1
                group.presence.seen = True

    def _take(self, limit: int) -> list[ConsumerRecord] | None:
        """Up to so many records of any partitions; None if none has something to look at."""
        ready, fetcher = self._ready, self._fetcher
        if ready:
            return [ready.popleft() for _ in range(min(limit, len(ready)))]
        readable = [buffer for buffer in fetcher.buffers.values() if buffer.readable]
        if not readable:
            return None
        records: list[ConsumerRecord] = []
        for buffer in readable:
            was_fetchable = buffer.fetchable
            try:
                records += buffer.take(limit - len(records))
            except BrokerError:
                if records:
                    break  # it will be said again when the application has these
                raise
            fetcher.taken(buffer, was_fetchable=was_fetchable)
            # To the end of the line, so that a busy partition does not keep the others waiting.
            fetcher.buffers[buffer.partition] = fetcher.buffers.pop(buffer.partition)
            if len(records) >= limit:
                break
        return records

    def _shown(self, records: list[ConsumerRecord]) -> list[ConsumerRecord[K, V]]:
        """As the application wants them. One that cannot be read is raised when it is the first."""
        if self._raw:
            return cast("list[ConsumerRecord[K, V]]", records)
        read_key, read_value = self._deserializers
        shown: list[ConsumerRecord[K, V]] = []
        for number, record in enumerate(records):
            part = "key"
            try:
                key = record.key if read_key is None or record.key is None else read_key(record.key)
                part = "value"
                value = record.value if read_value is None or record.value is None else read_value(record.value)
            except Exception as error:
                self._ready.extendleft(reversed(records[number:]))
                if shown:
                    break
                raise NotReadable(TopicPartition(record.topic, record.partition), record.offset, part, error) from error
            shown.append(cast("ConsumerRecord[K, V]", record._replace(key=key, value=value)))  # type: ignore[arg-type]
        return shown

    # The group

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Stores that everything given out so far is dealt with, or the positions named: of the next to be read.

        CommitFailed: the group has moved on, and what was read since the last commit will be read again.
        """
        self._check_open(leaving_too=True)
        group = self._in_group("committing")
        if offsets is None:
            found = group.to_commit(self.positions())
        else:
            found = {
                partition: position if isinstance(position, OffsetAndMetadata) else OffsetAndMetadata(Offset(position))
                for partition, position in offsets.items()
            }
        await group.commit(found, deadline)

    def commit_soon(self) -> asyncio.Task[None]:
        """As `commit`, without waiting: what is committed is decided now, and the task tells how it went."""
        self._check_open(leaving_too=True)
        return self._in_group("committing").commit_in_background(self.positions())

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, of all assigned partitions if none is named; None where it has not."""
        self._check_open(leaving_too=True)
        return await self._in_group("asking for commits").committed(
            self.assignment if partitions is None else partitions
        )

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is to its group: for committing its positions in a producer's transaction."""
        return self._in_group("being a member").metadata

    def _in_group(self, what: str) -> Participant:
        if self._group is None:
            raise ClientError(f"{what} needs a group: give the consumer a group_id")
        return self._group

    # What the group has to do with reading

    def _call(self) -> None:
        self._fetcher.arrived.set()

    def _epoch_of(self, partition: TopicPartition) -> int:
        buffer = self._fetcher.buffers.get(partition)
        return UNKNOWN if buffer is None else buffer.position_epoch

    def _take_over(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            buffer = self._fetcher.buffers[partition] = self._fetcher.new_buffer(partition)
            buffer.seek_to_commit()
        self._fetcher.wake()

    def _give_up(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        for partition in gone:
            self._fetcher.buffers.pop(partition, None)
        self._forget_ready(gone)

    def _forget_ready(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._ready = deque(record for record in self._ready if (record.topic, record.partition) not in gone)

    def _take_back(self, partition: TopicPartition) -> None:
        self._buffer(partition).take_back(
            record for record in self._ready if (record.topic, record.partition) == partition
        )
        self._forget_ready([partition])

    def _buffer(self, partition: TopicPartition) -> PartitionBuffer:
        try:
            return self._fetcher.buffers[partition]
        except KeyError:
            raise ClientError(f"{partition} is not assigned to this consumer") from None

    def _check_open(self, *, leaving_too: bool = False) -> None:
        if self._closed and not (leaving_too and self._leaving):
            raise Closed("the consumer is closed")


def _wish(topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> Wish:
    if isinstance(topics, str):
        raise TypeError(f"topics is a list of names: write [{topics!r}]")
    names = frozenset(topics)
    if names and pattern is not None:
        raise ValueError("subscribe to topics or to a pattern, not to both")
    return Wish(names, re.compile(pattern) if isinstance(pattern, str) else pattern)
