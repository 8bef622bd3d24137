"""Record batches from a consumer: what `poll` would have given, as columns, with the same positions."""

from __future__ import annotations

import asyncio
import sys

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import Admin, Consumer, OffsetSpec, Producer, TopicPartition
from tidelog.client.arrow_batches import ArrowTaker
from tidelog.client.errors import NeedsPackage
from tidelog.client.fetching import PartitionBuffer
from tidelog.records.arrow import SCHEMA, SCHEMA_WITHOUT_HEADERS
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.header import CorruptBatch
from tidelog.records.record import Record
from tidelog.types import Offset

WITHIN_S = 30

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class StillFetcher:
    """Buffers that nobody fetches for."""

    def __init__(self, *buffers: PartitionBuffer) -> None:
        self.buffers = {buffer.partition: buffer for buffer in buffers}

    def taken(self, buffer: PartitionBuffer, *, was_fetchable: bool) -> None: ...


def batch(first: int, count: int, *, codec: Codec = Codec.NONE, control: bool = False) -> bytearray:
    records = [Record(first + at, 5000 + at, b"k", b"v%d" % (first + at), ()) for at in range(count)]
    return build_batch(records, codec=codec, control=control)


def buffer_at(offset: int, *batches: bytearray, partition: TopicPartition = P0) -> PartitionBuffer:
    buffer = PartitionBuffer(partition, check_crcs=True)
    buffer.seek(Offset(offset))
    for each in batches:
        buffer.add(memoryview(bytes(each)))
    return buffer


def taken(*buffers: PartitionBuffer, max_bytes: int = 1 << 20) -> tuple[ArrowTaker, pa.RecordBatch]:
    taker = ArrowTaker(StillFetcher(*buffers), max_bytes=max_bytes, headers=True)  # type: ignore[arg-type]
    taker.take()
    return taker, taker.finish()


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    start=st.integers(0, 10),
    singles=st.integers(0, 10),
    max_bytes=st.sampled_from([1, 60, 1 << 20]),
)
def test_every_record_comes_once_whoever_takes_it(counts: list[int], start: int, singles: int, max_bytes: int) -> None:
    total = sum(counts)
    start = min(start, total - 1)
    data, offset = bytearray(), 0
    for count in counts:
        data += batch(offset, count)
        offset += count
    buffer = buffer_at(start, data)
    offsets = [record.offset for record in buffer.take(singles)]
    while buffer.waiting:
        assert buffer.position == start + len(offsets)
        taker, rows = taken(buffer, max_bytes=max_bytes)
        firsts = [(first.topic, first.offset) for first in taker.first_records]
        assert firsts == ([("t", start + len(offsets))] if rows.num_rows else [])
        offsets += rows.column("offset").to_pylist()
    assert offsets == list(range(start, total))
    assert buffer.position == total
    assert (buffer.held_bytes, buffer.held_records) == (0, 0)


def test_partitions_share_a_record_batch() -> None:
    one, other = buffer_at(0, batch(0, 3)), buffer_at(0, batch(0, 2, codec=Codec.LZ4), partition=P1)
    taker, rows = taken(one, other)
    assert rows.column("partition").to_pylist() == [0, 0, 0, 1, 1]
    assert rows.column("value").to_pylist() == [b"v0", b"v1", b"v2", b"v0", b"v1"]
    assert [first.partition for first in taker.first_records] == [0, 1]


def test_markers_are_passed_over() -> None:
    buffer = buffer_at(0, batch(0, 2), batch(2, 1, control=True), batch(3, 1))
    _, rows = taken(buffer)
    assert rows.column("offset").to_pylist() == [0, 1, 3]
    assert buffer.position == 4
    lone = buffer_at(0, batch(0, 1, control=True))
    taker, rows = taken(lone)
    assert (rows.num_rows, taker.first_records, lone.position) == (0, [], 1)


def test_paused_partitions_are_left_alone() -> None:
    buffer = buffer_at(0, batch(0, 2))
    buffer.paused = True
    _, rows = taken(buffer)
    assert rows.num_rows == 0
    assert buffer.position == 0


def test_damage_is_raised_when_everything_before_it_was_given() -> None:
    damaged = batch(3, 1)
    damaged[-2] ^= 1
    buffer = buffer_at(0, batch(0, 3), damaged)
    _, rows = taken(buffer, buffer_at(0, batch(0, 1), partition=P1))
    assert rows.num_rows == 4
    for _ in range(2):
        with pytest.raises(CorruptBatch, match="offset 3"):
            taken(buffer)
    assert buffer.position == 3


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tidelog.records.arrow", None)
    with pytest.raises(NeedsPackage, match=r"pip install 'tidelog\[arrow\]'"):
        taken(buffer_at(0))


async def fill(bootstrap: str, topic: str, count: int) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=2)
    async with Producer(bootstrap) as producer:
        for number in range(count):
            headers = [("n", b"%d" % number)] if number % 2 else []
            await producer.send(topic, b"v%d" % number, key=b"k%d" % number, headers=headers)


def test_batches_of_a_topic_as_they_come(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic, 100)
        found: list[pa.RecordBatch] = []
        async with asyncio.timeout(WITHIN_S), Consumer(bootstrap) as consumer:
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            async for rows in consumer.batches():
                assert rows.schema == SCHEMA
                found.append(rows)
                if sum(each.num_rows for each in found) == 100:
                    break
            assert sum(consumer.positions().values()) == 100
        table = pa.Table.from_batches(found)
        assert sorted(table.column("key").to_pylist()) == sorted(b"k%d" % number for number in range(100))
        for row in table.to_pylist():
            number = row["value"][1:]
            assert row["key"][1:] == number
            assert row["headers"] == ([{"key": "n", "value": number}] if int(number) % 2 else None)
            assert row["topic"] == topic

    asyncio.run(scenario())


def test_records_and_batches_by_turns(bootstrap: str, topic: str) -> None:
    """One position for all ways of reading."""

    async def scenario() -> None:
        await fill(bootstrap, topic, 60)
        found: list[tuple[int, int]] = []
        async with asyncio.timeout(WITHIN_S), Consumer(bootstrap, max_poll_records=7) as consumer:
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            record = await anext(consumer)  # takes more out of the buffers than it gives
            found.append((record.partition, record.offset))
            found += [(record.partition, record.offset) for record in await consumer.poll(max_records=3)]
            while len(found) < 60:
                rows = await consumer.poll_batch(max_bytes=1)
                found += zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True)
            assert (await consumer.poll_batch(0.0, headers=False)).schema == SCHEMA_WITHOUT_HEADERS
        assert len(set(found)) == len(found) == 60
        for partition in range(2):
            offsets = [offset for at, offset in found if at == partition]
            assert offsets == list(range(len(offsets)))

    asyncio.run(scenario())


def test_a_batch_in_hand_is_not_committed_by_itself(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        await fill(bootstrap, topic, 20)
        settings = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with asyncio.timeout(WITHIN_S):
            async with Consumer(bootstrap, topics=[topic], **settings) as consumer:  # type: ignore[arg-type]
                rows = await consumer.poll_batch()
                while not rows.num_rows:
                    rows = await consumer.poll_batch()
                begins = consumer._positions(in_hand_done=False)
                for partition in set(rows.column("partition").to_pylist()):
                    assert begins[TopicPartition(topic, partition)] == 0

    asyncio.run(scenario())
