"""The source without Spark: readers are made and called as Spark makes and calls them, in this process."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.client import Admin, OffsetSpec, Producer, TopicPartition
from tidelog.pipelines.datasource import TidelogDataSource
from tidelog.pipelines.source.batch import BatchReader
from tidelog.pipelines.source.stream import StreamReader
from tidelog.testing.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

    Document = dict[str, Any]


def source(bootstrap: str, **options: object) -> TidelogDataSource:
    """Options by name; a dot is written as two underscores."""
    named = {name.replace("__", ".").lower(): str(value) for name, value in options.items()}
    return TidelogDataSource({"kafka.bootstrap.servers": bootstrap, **named})


def batch_reader(bootstrap: str, **options: object) -> BatchReader:
    made = source(bootstrap, **options)
    reader = made.reader(made.schema())
    assert isinstance(reader, BatchReader)
    return reader


def stream_reader(bootstrap: str, **options: object) -> StreamReader:
    made = source(bootstrap, **options)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, StreamReader)
    _streaming.append(reader)
    return reader


_streaming: list[StreamReader] = []


def stop_readers() -> None:
    """Spark stops each reader that it has made, however its query ends."""
    while _streaming:
        _streaming.pop().stop()


def table(batches: Sequence[Any]) -> list[dict[str, Any]]:
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def run_tasks(reader: BatchReader | StreamReader, partitions: Sequence[InputPartition]) -> list[dict[str, Any]]:
    """Rows as tasks give them. Reader and partitions go to them pickled."""
    there: BatchReader | StreamReader = pickle.loads(pickle.dumps(reader))
    batches: list[Any] = []
    for partition in partitions:
        batches += there.read(pickle.loads(pickle.dumps(partition)))
    return table(batches)


def read_batch(
    bootstrap: str, filters: Sequence[Filter] | None = None, schema: StructType | None = None, /, **options: object
) -> list[dict[str, Any]]:
    made = source(bootstrap, **options)
    reader = made.reader(schema or made.schema())
    assert isinstance(reader, BatchReader)
    if filters is not None:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    return run_tasks(reader, reader.partitions())


class Query:
    """A streaming query: plans batches as Spark does, and remembers what it has come to."""

    def __init__(self, reader: StreamReader, start: Document | None = None) -> None:
        self.reader = reader
        self.start: Document = reader.initialOffset() if start is None else start

    def plan(self) -> tuple[Document, Document] | None:
        end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
        return None if end == self.start else (self.start, end)

    def read(self, start: Document, end: Document) -> list[dict[str, Any]]:
        return run_tasks(self.reader, self.reader.partitions(start, end))

    def step(self) -> list[dict[str, Any]] | None:
        """One batch's rows; None when there is none to be had."""
        planned = self.plan()
        if planned is None:
            return None
        rows = self.read(*planned)
        self.start = planned[1]
        return rows

    def next_batch(self) -> list[dict[str, Any]]:
        """Asks until there is one, as Spark does."""
        while (rows := self.step()) is None:
            pass
        return rows


def values(rows: list[dict[str, Any]] | None) -> list[bytes]:
    assert rows is not None, "a batch was expected"
    return [row["value"] for row in rows]


def everything(reader: StreamReader, start: Document) -> Document:
    return reader.latestOffset(start, ReadAllAvailable())


def create(bootstrap: str, topic: str, partitions: int = 1, /, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with_admin(bootstrap, lambda admin: admin.create_topic(topic, partitions=partitions, configs=named))


def with_admin(bootstrap: str, work: Callable[[Admin], Awaitable[Any]]) -> Any:
    async def scenario() -> Any:
        async with Admin(bootstrap) as admin:
            return await work(admin)

    return asyncio.run(scenario())


def produce(
    bootstrap: str, topic: str, values: Sequence[bytes | None], partition: int | None = 0, **settings: Any
) -> None:
    async def scenario() -> None:
        async with Producer(bootstrap, **settings) as producer:
            for value in values:
                await producer.send(topic, value, partition=partition)

    asyncio.run(scenario())


def produce_transaction(bootstrap: str, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    async def scenario() -> None:
        async with Producer(bootstrap, transactional_id=f"transaction of {topic}") as producer:
            await producer.begin()
            for value in values:
                await producer.send(topic, value, partition=0)
            await producer.flush()  # aborting forgets what was not sent
            await (producer.commit() if commit else producer.abort())

    asyncio.run(scenario())
    eventually(lambda: _all_decided(bootstrap, topic), "the marker of the transaction")


def _all_decided(bootstrap: str, topic: str) -> bool:
    async def ends(admin: Admin) -> bool:
        at = {TopicPartition(topic, 0): OffsetSpec.latest()}
        return await admin.list_offsets(at) == await admin.list_offsets(at, committed_only=True)

    return bool(with_admin(bootstrap, ends))


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]
