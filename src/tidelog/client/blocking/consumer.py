"""The consumer without `await`, with plain iteration. Written by scripts/blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client import consumer as asynchronous
from tidelog.client.arrow_batches import BATCH_BYTES_MAX
from tidelog.client.blocking.consuming import Consuming, in_a_thread
from tidelog.client.fetching import K, V

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from pyarrow import RecordBatch  # type: ignore[import-untyped]

    from tidelog.client.config import ConsumerConfig
    from tidelog.client.consumer_settings import ConsumerSettings
    from tidelog.client.fetching import ConsumerRecord
    from tidelog.client.groups.listener import RebalanceListener
    from tidelog.client.groups.member import GroupMetadata
    from tidelog.client.metrics import ClientMetrics
    from tidelog.client.offsets import OffsetAndMetadata, OffsetSpec
    from tidelog.types import Offset, TopicPartition


class Consumer(Consuming[K, V]):
    """As the asyncio consumer, from any thread, one at a time."""

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
        super().__init__(
            lambda: asynchronous.Consumer(
                bootstrap,
                config,
                topics=topics,
                pattern=pattern,
                listener=in_a_thread(listener),
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                **settings,
            )
        )

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Shares these topics with the other members of the group; replaces an earlier subscription.

        A `pattern` has to fit the whole name. In the newer group protocol the broker matches it, as RE2 does.
        """
        self._loop.run(self._client.subscribe(topics, pattern=pattern, listener=in_a_thread(listener)))

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        self._loop.run(self._client.unsubscribe())

    def assign(self, starts: Mapping[TopicPartition, OffsetSpec | int | None]) -> None:
        """Reads exactly these partitions from now on, each from the place given.

        None, in a group: from its last commit, or where auto_offset_reset says.
        """
        self._loop.run(self._client.assign(starts))

    def assign_topics(self, topics: Iterable[str], start: OffsetSpec | None) -> None:
        """Reads every partition that the topics have now."""
        self._loop.run(self._client.assign_topics(topics, start))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._loop.call(lambda: self._client.assignment)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to by name."""
        return self._loop.call(lambda: self._client.subscription)

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives no records of these until they are resumed. Their positions stay, and so does the membership."""
        self._loop.call(lambda: self._client.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._loop.call(lambda: self._client.resume(*partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._loop.call(lambda: self._client.paused)

    def seek(self, partition: TopicPartition, start: OffsetSpec | int) -> None:
        """Goes on reading the partition from another place: an offset, or what OffsetSpec can say."""
        self._loop.run(self._client.seek(partition, start))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """All that are assigned, if none is named."""
        self._loop.run(self._client.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """All that are assigned, if none is named."""
        self._loop.run(self._client.seek_to_end(*partitions))

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """To the first record that is not older, or the end; all that are assigned, if none is named."""
        self._loop.run(self._client.seek_to_timestamp(timestamp_ms, *partitions))

    def position(self, partition: TopicPartition) -> Offset:
        """The offset of the partition's next record to be returned; PositionUnknown before that was found out."""
        return self._loop.call(lambda: self._client.position(partition))

    def positions(self) -> dict[TopicPartition, Offset]:
        """Of all assigned partitions whose position is known: what `commit` commits."""
        return self._loop.call(self._client.positions)

    def high_watermark(self, partition: TopicPartition) -> Offset | None:
        """The partition's end as the last fetch saw it, None before the first."""
        return self._loop.call(lambda: self._client.high_watermark(partition))

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, counted."""
        return self._loop.call(self._client.metrics)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return self._loop.run(self._client.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """With read_committed, the end of what may be read."""
        return self._loop.run(self._client.end_offsets(partitions))

    def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """The first record that is not older; None if all are."""
        return self._loop.run(self._client.offsets_for_times(timestamps_ms))

    def poll(self, timeout_s: float | None = None, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Waits for records and returns some, all of them in order per partition.

        An empty list: the time is up, or a position moved over something that holds no records.
        """
        return self._loop.run(self._client.poll(timeout_s, max_records))

    def poll_by_partition(
        self, timeout_s: float | None = None, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """As `poll`, sorted by partition."""
        return self._loop.run(self._client.poll_by_partition(timeout_s, max_records))

    def poll_batch(
        self, timeout_s: float | None = None, *, max_bytes: int = BATCH_BYTES_MAX, headers: bool = True
    ) -> RecordBatch:
        """As `poll`, but a pyarrow.RecordBatch with the columns of Spark's Kafka source, `headers` only if wished.

        It holds what waits, keys and values as bytes: batches as they were stored, until it has some `max_bytes`.
        """
        return self._loop.run(self._client.poll_batch(timeout_s, max_bytes=max_bytes, headers=headers))

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Stores that everything given out so far is dealt with, or the positions named: of the next to be read.

        CommitFailed: the group has moved on, and what was read since the last commit will be read again.
        """
        self._loop.run(self._client.commit(offsets))

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, of all assigned partitions if none is named; None where it has not."""
        return self._loop.run(self._client.committed(partitions))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is to its group: for committing its positions in a producer's transaction."""
        return self._loop.call(self._client.group_metadata)
