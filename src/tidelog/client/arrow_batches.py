"""What waits for a consumer, taken as Arrow columns instead of single records. pyarrow is loaded on use only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.errors import NeedsPackage
from tidelog.client.fetching import ConsumerRecord
from tidelog.errors import BrokerError
from tidelog.records.record import Record

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]

    from tidelog.client.fetcher import Fetcher
    from tidelog.client.fetching import PartitionBuffer
    from tidelog.records.arrow import ArrowBuilder
    from tidelog.types import Offset

BATCH_BYTES_MAX: Final = 16 << 20
"""Of records, inflated, after which a record batch takes in no more."""


class ArrowTaker:
    """One record batch of what the buffers of a fetcher hold, of as many partitions as it takes to fill it."""

    def __init__(self, fetcher: Fetcher, *, max_bytes: int, headers: bool) -> None:
        self.first_records: list[ConsumerRecord] = []
        """Stand-ins for the first record of each partition: where the application will have to go on if it fails."""
        self._fetcher = fetcher
        self._max_bytes = max_bytes
        self._builder = _new_builder(headers=headers)

    def take(self) -> bool | None:
        """Fills the batch; None if no partition has something to look at."""
        buffers = self._fetcher.buffers
        readable = [buffer for buffer in buffers.values() if buffer.readable]
        for buffer in readable:
            was_fetchable = buffer.fetchable
            try:
                self._take_from(buffer)
            except BrokerError:
                if self._builder.rows:
                    break  # it will be said again when the application has these
                raise
            finally:
                self._fetcher.taken(buffer, was_fetchable=was_fetchable)
            # To the end of the line, so that a busy partition does not keep the others waiting.
            buffers[buffer.partition] = buffers.pop(buffer.partition)
            if self._full():
                break
        return True if readable else None

    def finish(self) -> RecordBatch:
        return self._builder.finish()

    def _full(self) -> bool:
        return self._builder.body_bytes >= self._max_bytes

    def _take_from(self, buffer: PartitionBuffer) -> None:
        topic, partition = buffer.partition
        begin, rows_before = buffer.position, self._builder.rows
        # Of a batch that `poll` began to take apart.
        single = [Record(*record[2:]) for record in buffer.take_single()]
        self._builder.add_records(single, topic, partition)

        def read(data: memoryview, first_offset: Offset) -> None:
            self._builder.add(data, topic, partition, first_offset=first_offset)

        try:
            buffer.take_batches(read, self._full)
        except BrokerError:
            if not single:
                raise
        if self._builder.rows > rows_before:
            self.first_records.append(ConsumerRecord(topic, partition, begin, -1, None, None, ()))


def _new_builder(*, headers: bool) -> ArrowBuilder:
    try:
        from tidelog.records.arrow import ArrowBuilder  # noqa: PLC0415 - pyarrow takes long to load
    except ModuleNotFoundError as error:
        raise NeedsPackage("reading Arrow batches", "pyarrow", "arrow") from error
    return ArrowBuilder(headers=headers)
