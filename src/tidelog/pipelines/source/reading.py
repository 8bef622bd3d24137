"""One range of one partition, read from its leader into Arrow batches. This is what a task does.

While one answer is decoded and handed to Spark, the next is on its way. Control records, aborted transactions and gaps
that compaction left have offsets but give no rows: reading ends when the range's end is reached, by whatever kind of
record.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from tidelog.client.fetching import PartitionBuffer
from tidelog.errors import BrokerError, ErrorCode
from tidelog.pipelines.source.connections import shared_cluster, start
from tidelog.pipelines.source.errors import DataLost, SourceError, Unreadable
from tidelog.pipelines.source.fetching import Gone, RangeFetcher
from tidelog.pipelines.source.splits import OffsetRange, bundle, split
from tidelog.pipelines.worker_rest import shorten_rests
from tidelog.records.arrow import ArrowBuilder
from tidelog.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from pyarrow import RecordBatch  # type: ignore[import-untyped]

    from tidelog.pipelines.source.options import SourceOptions
    from tidelog.types import TopicId, TopicPartition
    from tidelog.wire.messages.fetch import PartitionData

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 4 << 20
"""Of records, inflated, after which an Arrow batch is handed over."""

SMALL_BATCH_OFFSETS: Final = 10_000
SMALL_TASKS_MAX: Final = 4
"""So few offsets are read by no more than so many tasks."""


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange], ids: Mapping[TopicPartition, TopicId]) -> None:
        self.ranges = tuple((each, ids[each.partition]) for each in ranges)
        super().__init__(self.ranges)


def to_tasks(
    ranges: Sequence[OffsetRange], options: SourceOptions, ids: Mapping[TopicPartition, TopicId]
) -> list[RangePartition]:
    """Divides what is to be read among tasks, as options say."""
    fewest, largest = options.min_partitions, options.max_records_per_partition
    pieces = split(ranges, fewest, largest)
    if fewest is not None or largest is not None:
        return [RangePartition([piece], ids) for piece in pieces]
    return [RangePartition(each, ids) for each in bundle(pieces, SMALL_TASKS_MAX, SMALL_BATCH_OFFSETS)]


def read_ranges(options: SourceOptions, columns: Sequence[str], task: RangePartition) -> Iterator[RecordBatch]:
    """DataLost or SourceError name the partition and the offsets."""
    for offsets, topic_id in task.ranges:
        yield from _RangeReader(options, columns, offsets, topic_id).batches()
    shorten_rests()


class _RangeReader:
    def __init__(self, options: SourceOptions, columns: Sequence[str], offsets: OffsetRange, topic_id: TopicId) -> None:
        self._options = options
        self._columns = list(columns)
        self._with_headers = "headers" in columns
        self._at, begin, self._end = offsets
        self._buffer = PartitionBuffer(self._at, check_crcs=options.consumer.check_crcs)
        self._buffer.seek(Offset(begin))
        self._fetcher = RangeFetcher(
            shared_cluster(options.consumer), options.consumer, self._at, topic_id, options.stalled_ms
        )

    def batches(self) -> Iterator[RecordBatch]:
        coming: Future[PartitionData | None] | None = self._ask()
        try:
            while coming is not None:
                try:
                    answer = coming.result()
                except Gone as gone:
                    coming = self._lost(gone)
                    continue
                coming = None
                if answer is None:
                    return
                self._take_in(answer)
                if self._buffer.fetch_offset < self._end:
                    coming = self._ask()
                yield from self._decoded()
        finally:
            if coming is not None:
                coming.cancel()

    def _ask(self) -> Future[PartitionData | None]:
        return start(self._fetcher.fetch(self._buffer.fetch_offset, self._end))

    def _take_in(self, answer: PartitionData) -> None:
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        shown = aborted if self._options.consumer.committed_only else None
        assert answer.records is not None, "the fetcher gives answers with records only"
        try:
            whole = self._buffer.add(memoryview(answer.records), shown)  # type: ignore[arg-type]
        except BrokerError as error:
            raise self._damaged(error) from error
        if not whole:
            raise SourceError(f"{self._at}: the broker sent no whole batch at offset {self._buffer.fetch_offset}")

    def _decoded(self) -> Iterator[RecordBatch]:
        while self._buffer.waiting and self._buffer.position < self._end:
            builder = ArrowBuilder(headers=self._with_headers)
            self._fill(builder)
            if builder.rows:
                yield self._finished(builder)

    def _fill(self, builder: ArrowBuilder) -> None:
        topic, index = self._at

        def read(data: memoryview, first_offset: Offset) -> None:
            builder.add(data, topic, index, first_offset=first_offset)

        def full() -> bool:
            return builder.body_bytes >= BATCH_BYTES or self._buffer.position >= self._end

        try:
            self._buffer.take_batches(read, full)
        except BrokerError as error:
            raise self._damaged(error) from error

    def _finished(self, builder: ArrowBuilder) -> RecordBatch:
        batch = builder.finish()
        if self._buffer.position > self._end:
            offsets = batch.column("offset")
            batch = batch.slice(0, bisect_left(offsets, self._end, key=lambda offset: offset.as_py()))
        return batch if batch.schema.names == self._columns else batch.select(self._columns)

    def _damaged(self, error: BrokerError) -> Unreadable:
        if error.code != ErrorCode.CORRUPT_MESSAGE:
            return Unreadable(f"{self._at}: {error}")
        return Unreadable(f"{self._at} cannot be read from offset {self._buffer.position} on: {error}")

    def _lost(self, gone: Gone) -> Future[PartitionData | None] | None:
        """Goes on behind what is lost, if that is allowed."""
        position = self._buffer.position
        what = f"{self._at}: offsets {position} to {self._end - 1} were to be read, but {gone.reason}"
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"{what}; set option failOnDataLoss to false to go on without them, or begin anew from what there is"
            )
        resumed = self._end if gone.begins is None else min(max(gone.begins, position), self._end)
        log.warning("DATA LOSS: %s; going on at offset %d, as failOnDataLoss is false", what, resumed)
        self._buffer.seek(Offset(resumed))
        return self._ask() if resumed < self._end else None
