"""Rows of Arrow tables on their way out: packed into whole batches at once, which then go the way of all batches.

pyarrow is loaded on use only.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.accumulator import NO_IDENTITY, Batch
from tidelog.client.errors import NeedsPackage, RecordTooLarge
from tidelog.client.sender import Receipt, RecordMetadata
from tidelog.records.build import append_record
from tidelog.records.header import HEADER_SIZE
from tidelog.records.record import iter_body
from tidelog.types import Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pyarrow import RecordBatch, Table  # type: ignore[import-untyped]

    from tidelog.client.metadata import TopicMetadata
    from tidelog.records.arrow_rows import ArrowRows
    from tidelog.records.header import Buffer

_ANYWHERE = -1


class StoredRows(NamedTuple):
    """Rows that were stored one after the other."""

    topic: str
    partition: int
    offset: Offset
    """Of the first; -1 when the broker did not say."""
    rows: int


class BatchDelivery(NamedTuple):
    """Where the rows of a table were stored. Those of one key, and those that name one partition, keep their order."""

    rows: int
    stored: tuple[StoredRows, ...]


class Outlet(NamedTuple):
    """What the producer does for those who bring whole batches."""

    metadata: Callable[[str], Awaitable[TopicMetadata]]
    choose: Callable[[TopicMetadata, bytes | None, int], int]
    """The partition for a key, or for none and so many bytes."""
    asks_for_every_key: bool
    """The usual rules do not hold: the producer was given a partitioner."""
    enqueue: Callable[[Batch[Receipt]], Awaitable[None]]
    """Waits for room, and has the batch sent."""
    now_ms: Callable[[], int]
    batch_bytes_max: int


class PackedBatch(Batch[Receipt]):
    """A batch that came as a whole: it takes no further record, and one receipt stands for all of it."""

    __slots__ = ("_count", "_settlement")

    open = False

    def __init__(
        self, partition: TopicPartition, created_s: float, base_timestamp: int, settlement: Settlement
    ) -> None:
        super().__init__(partition, created_s, base_timestamp)
        self._settlement = settlement
        self._count = 0

    def fill(self, body: bytearray, count: int, max_timestamp: int) -> None:
        self.body = body
        self._count = count
        self.max_timestamp = max_timestamp
        self.tokens = [Receipt(self._settlement.expect(count), self.base_timestamp)]

    @property
    def record_count(self) -> int:
        return self._count

    def halves(self) -> tuple[Batch[Receipt], Batch[Receipt]]:
        assert self._count > 1
        middle = self._count // 2
        halves = (self._half(0, middle), self._half(middle, self._count))
        self._settlement.replace(self.tokens[0].future, *(half.tokens[0].future for half in halves))
        return halves

    def _half(self, start: int, stop: int) -> PackedBatch:
        half = PackedBatch(self.partition, self.created_s, self.base_timestamp, self._settlement)
        body = bytearray()
        for record in iter_body(bytes(self.body), self._header(NO_IDENTITY)):
            if start <= record.offset < stop:
                delta = record.timestamp - self.base_timestamp
                append_record(body, record.offset - start, delta, record.key, record.value, headers=record.headers)
        half.fill(body, stop - start, self.max_timestamp)
        return half


class Settlement:
    """Gathers what became of all batches of one table into one future."""

    def __init__(self, rows: int) -> None:
        self.future: asyncio.Future[BatchDelivery] = asyncio.get_running_loop().create_future()
        self._rows = rows
        self._open: set[asyncio.Future[RecordMetadata]] = set()
        self._stored: list[StoredRows] = []
        self._error: BaseException | None = None
        self._complete = False

    def expect(self, count: int) -> asyncio.Future[RecordMetadata]:
        """The future of one more batch of `count` rows."""
        part: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._open.add(part)
        part.add_done_callback(partial(self._settled, count))
        return part

    def replace(self, part: asyncio.Future[RecordMetadata], *halves: asyncio.Future[RecordMetadata]) -> None:
        """The batch was split: whoever waits for `part` waits for both halves from now on."""
        self._open.discard(part)

        def pass_on(_: object) -> None:
            if not part.done() and all(half.done() for half in halves):
                error = next((half.exception() for half in halves if half.exception() is not None), None)
                if error is None:
                    part.set_result(halves[0].result())
                else:
                    part.set_exception(error)
                    part.exception()  # looked at: the table's future tells of it

        for half in halves:
            half.add_done_callback(pass_on)

    def complete(self) -> None:
        """Every batch of the table is expected by now."""
        self._complete = True
        self._finish()

    def _settled(self, count: int, part: asyncio.Future[RecordMetadata]) -> None:
        if part not in self._open:
            return  # it was split
        self._open.discard(part)
        error = part.exception()
        if error is None:
            topic, partition, offset, _ = part.result()
            self._stored.append(StoredRows(topic, partition, offset, count))
        else:
            self._error = self._error or error
        self._finish()

    def _finish(self) -> None:
        if not self._complete or self._open or self.future.done():
            return
        if self._error is None:
            self.future.set_result(BatchDelivery(self._rows, tuple(sorted(self._stored))))
        else:
            self.future.set_exception(self._error)
            self.future.exception()  # looked at: the sender has logged it


async def send_table(outlet: Outlet, topic: str | None, table: RecordBatch | Table) -> asyncio.Future[BatchDelivery]:
    """Packs and enqueues all rows; gives the future of their delivery."""
    settlement = Settlement(table.num_rows)
    try:
        for name, rows in _by_topic(table, topic):
            await _send_rows(outlet, name, rows, settlement)
    finally:
        settlement.complete()
    return settlement.future


async def _send_rows(outlet: Outlet, topic: str, rows: ArrowRows, settlement: Settlement) -> None:
    metadata = await outlet.metadata(topic)
    choose = (lambda key: outlet.choose(metadata, key, 0)) if outlet.asks_for_every_key else None
    for wish, numbers in rows.by_partition(len(metadata.partitions), choose).items():
        start = 0
        while start < len(numbers) // 4:
            chosen = outlet.choose(metadata, None, outlet.batch_bytes_max) if wish == _ANYWHERE else wish
            start = await _send_some(outlet, TopicPartition(topic, chosen), rows, numbers, start, settlement)


async def _send_some(
    outlet: Outlet, partition: TopicPartition, rows: ArrowRows, numbers: Buffer, start: int, settlement: Settlement
) -> int:
    """One batch of the rows from `start` on; gives where the next one starts."""
    body = bytearray()
    limit = outlet.batch_bytes_max - HEADER_SIZE
    stop, base_timestamp, max_timestamp = rows.append(body, numbers, start, limit=limit, now_ms=outlet.now_ms())
    if stop == start:
        raise RecordTooLarge(
            f"row {memoryview(numbers).cast('B').cast('i')[start]} makes a record of more than the {limit} bytes that "
            "max_request_size leaves; what comes before it is sent"
        )
    batch = PackedBatch(partition, asyncio.get_running_loop().time(), base_timestamp, settlement)
    batch.fill(body, stop - start, max_timestamp)
    await outlet.enqueue(batch)
    return stop


def _by_topic(table: RecordBatch | Table, topic: str | None) -> Iterator[tuple[str, ArrowRows]]:
    """The parts of the table for each topic: the one given, or else what the column `topic` says."""
    try:
        import pyarrow.compute as pc  # type: ignore[import-untyped] # noqa: PLC0415 - pyarrow takes long to load

        from tidelog.records.arrow_rows import ArrowRows  # noqa: PLC0415 - same
    except ModuleNotFoundError as error:
        raise NeedsPackage("sending Arrow tables", "pyarrow", "arrow") from error
    batches = table.to_batches() if hasattr(table, "to_batches") else [table]
    for batch in batches:
        if topic is not None:
            yield topic, ArrowRows(batch)
            continue
        if "topic" not in batch.schema.names:
            raise ValueError("there is no column 'topic': name the topic, or add the column")
        names = batch.column("topic")
        if names.null_count:
            raise ValueError("column 'topic' holds nulls: every row needs a topic")
        for name in names.unique().to_pylist():
            yield name, ArrowRows(batch.filter(pc.equal(names, name)))
