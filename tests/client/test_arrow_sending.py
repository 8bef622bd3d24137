"""Tables through a producer: every row stored once, in order, where its columns say; and what is said of failures."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tidelog.client import Admin, Consumer, OffsetSpec, Producer, TopicPartition
from tidelog.client.accumulator import Accumulator, Batch
from tidelog.client.arrow_sending import PackedBatch, Settlement, StoredRows
from tidelog.client.errors import Closed, NeedsPackage, RecordTooLarge
from tidelog.client.partitioner import partition_for_key
from tidelog.client.sender import Receipt, RecordMetadata
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import append_record
from tidelog.records.compression import Codec
from tidelog.records.record import iter_records
from tidelog.types import Offset

WITHIN_S = 30
NOW_MS = 1_700_000_000_000
P0 = TopicPartition("t", 0)


async def stored(bootstrap: str, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(WITHIN_S), Consumer(bootstrap) as consumer:
        await consumer.assign_topics([topic], OffsetSpec.earliest())
        while len(found) < count:
            found += await consumer.poll()
    return found


def packed(settlement: Settlement, count: int, created_s: float = 0.0) -> PackedBatch:
    body = bytearray()
    for number in range(count):
        append_record(body, number, number, b"k", b"v%d" % number, headers=(("h", b"x"),))
    batch = PackedBatch(P0, created_s, NOW_MS, settlement)
    batch.fill(body, count, NOW_MS + count - 1)
    return batch


def test_a_packed_batch_waits_for_nobody_and_takes_nothing_more() -> None:
    async def scenario() -> None:
        accumulator: Accumulator[Receipt] = Accumulator(batch_bytes=1 << 20, linger_s=60.0, buffer_bytes=1 << 20)
        batch = packed(Settlement(3), 3, created_s=5.0)
        accumulator.add_batch(batch)
        assert accumulator.used_bytes == batch.size
        assert not accumulator.room_in_batch(P0, 1)
        assert accumulator.ready(5.0) == [P0]
        receipt = Receipt(asyncio.get_running_loop().create_future(), NOW_MS)
        accumulator.add(P0, NOW_MS, None, b"after", (), receipt, 5.0, 40)
        taken = accumulator.take(P0, None)
        assert taken is batch
        assert [record.value for record in iter_records(taken.seal(Codec.NONE))] == [b"v0", b"v1", b"v2"]
        accumulator.succeeded(taken)
        assert accumulator.take(P0, None).record_count == 1

    asyncio.run(scenario())


def test_halves_hold_the_same_records_and_both_count() -> None:
    async def scenario() -> None:
        settlement = Settlement(5)
        whole = packed(settlement, 5)
        settlement.complete()
        records = list(iter_records(whole.seal(Codec.NONE)))
        first, second = whole.halves()
        read = [list(iter_records(half.seal(Codec.NONE))) for half in (first, second)]
        assert [len(half) for half in read] == [2, 3] == [first.record_count, second.record_count]
        shifted = [record._replace(offset=record.offset + 2) for record in read[1]]
        assert [*read[0], *shifted] == records
        # Whoever waited for the whole, such as a flush, waits for both.
        _settle(second, 70)
        await asyncio.sleep(0)
        assert not whole.tokens[0].future.done()
        assert not settlement.future.done()
        _settle(first, 50)
        delivery = await settlement.future
        assert delivery.rows == 5
        assert delivery.stored == (StoredRows("t", 0, Offset(50), 2), StoredRows("t", 0, Offset(70), 3))
        assert (await whole.tokens[0].future).offset == 50

    asyncio.run(scenario())


def _settle(batch: Batch[Receipt], offset: int) -> None:
    batch.tokens[0].future.set_result(RecordMetadata("t", 0, Offset(offset), NOW_MS))


def test_one_failure_fails_the_table_when_all_is_known() -> None:
    async def scenario() -> None:
        settlement = Settlement(4)
        one, other = packed(settlement, 2), packed(settlement, 2)
        first, second = one.halves()
        settlement.complete()
        first.tokens[0].future.set_exception(BrokerError(ErrorCode.INVALID_RECORD, "no"))
        await asyncio.sleep(0)
        assert not settlement.future.done()
        _settle(second, 1)
        _settle(other, 2)
        with pytest.raises(BrokerError, match="no"):
            await settlement.future
        with pytest.raises(BrokerError, match="no"):
            await one.tokens[0].future

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_table_with_every_column(bootstrap: str, topic: str, codec: str) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=3)
        async with asyncio.timeout(WITHIN_S), Producer(bootstrap, compression_type=codec) as producer:
            first = await producer.send(topic, b"first", partition=2)
            now_ms = (await first).timestamp
            table = pa.table(
                {
                    "value": ["plain", None, "keyed", "placed"],
                    "key": pa.array([None, b"a", b"b", b"a"], pa.binary()),
                    "partition": pa.array([None, None, None, 2], pa.int32()),
                    "timestamp": pa.array([now_ms * 1000 + 999] * 4, pa.timestamp("us")),
                    "headers": pa.array(
                        [None, [{"key": "h", "value": b"1"}], [], None],
                        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                    ),
                }
            )
            delivery = await (await producer.send_batch(topic, table))
        assert delivery.rows == 4
        assert sum(part.rows for part in delivery.stored) == 4
        assert min(part.offset for part in delivery.stored if part.partition == 2) == 1
        rows = await stored(bootstrap, topic, 5)
        by_value = {row.value: row for row in rows}
        assert by_value[b"placed"].partition == 2
        assert by_value[b"keyed"].partition == partition_for_key(b"b", 3)
        assert by_value[None].headers == (("h", b"1"),)
        assert by_value[None].partition == partition_for_key(b"a", 3)
        assert {row.timestamp for row in rows} == {now_ms}

    asyncio.run(scenario())


def test_many_rows_keep_their_order_by_partition(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=3)
        numbers = range(20_000)
        table = pa.table(
            {"key": [f"k{number % 17}" for number in numbers], "value": [f"{number:050}" for number in numbers]}
        )
        async with Producer(bootstrap, max_request_size=100_000, buffer_memory=200_000) as producer:
            half = await producer.send_batch(topic, table.slice(0, 10_000))
            await producer.send_batch(topic, table.slice(10_000).to_batches()[0])
            await producer.flush()
            assert half.done()
            assert producer.buffered_bytes == 0
        rows = await stored(bootstrap, topic, 20_000)
        for partition in range(3):
            values = [int(row.value) for row in rows if row.partition == partition]
            assert values == sorted(values)
        assert sorted(int(row.value) for row in rows) == list(numbers)

    asyncio.run(scenario())


def test_batches_that_the_broker_finds_too_large_are_split(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=1, configs={"max.message.bytes": "5000"})
        async with Producer(bootstrap) as producer:
            future = await producer.send_batch(topic, pa.table({"value": [f"{number:040}" for number in range(1000)]}))
            await producer.flush()
            assert future.done()
            delivery = await future
        assert len(delivery.stored) > 10
        ends = [part.offset + part.rows for part in delivery.stored]
        assert [part.offset for part in delivery.stored] == [0, *ends[:-1]]
        assert [int(row.value) for row in await stored(bootstrap, topic, 1000)] == list(range(1000))

    asyncio.run(scenario())


def test_topics_by_column_and_partitions_by_partitioner(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        names = [f"{topic}-{letter}" for letter in "ab"]
        async with Admin(bootstrap) as admin:
            for name in names:
                await admin.create_topic(name, partitions=2)
        table = pa.table({"topic": [*names, *names], "value": [b"1", b"2", b"3", b"4"], "key": [b"k"] * 4})

        def last(_topic: str, _key: bytes | None, count: int, _available: object) -> int:
            return count - 1

        async with Producer(bootstrap, partitioner=last) as producer:
            await (await producer.send_batch(None, table))
        for name, values in zip(names, ([b"1", b"3"], [b"2", b"4"]), strict=True):
            assert [(row.partition, row.value) for row in await stored(bootstrap, name, 2)] == [(1, v) for v in values]

    asyncio.run(scenario())


def test_tables_count_in_transactions(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=1)
        async with asyncio.timeout(WITHIN_S), Producer(bootstrap, transactional_id=topic) as producer:
            await producer.begin()
            await producer.send_batch(topic, pa.table({"value": [b"aborted"] * 100}))
            await producer.flush()
            await producer.abort()
            async with producer.transaction():
                await producer.send_batch(topic, pa.table({"value": [b"committed"] * 50}))
        async with asyncio.timeout(WITHIN_S), Consumer(bootstrap, isolation_level="read_committed") as consumer:
            await consumer.assign_topics([topic], OffsetSpec.earliest())
            rows = [row async for row in _some(consumer, 50)]
        assert rows == [b"committed"] * 50

    asyncio.run(scenario())


async def _some(consumer: Consumer, count: int) -> Any:
    async for batch in consumer.batches():
        for value in batch.column("value").to_pylist():
            yield value
            count -= 1
        if count <= 0:
            return


def test_what_cannot_be_sent_is_said(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Producer(bootstrap, max_request_size=1000) as producer:
            await producer.send_and_wait(topic, b"makes the topic")
            with pytest.raises(RecordTooLarge, match="row 1 makes"):
                await producer.send_batch(topic, pa.table({"value": [b"small", bytes(2000)]}))
            with pytest.raises(ValueError, match="no column 'topic'"):
                await producer.send_batch(None, pa.table({"value": [b"v"]}))
            with pytest.raises(ValueError, match="holds nulls"):
                await producer.send_batch(None, pa.table({"value": [b"v"], "topic": pa.array([None], pa.string())}))
            with pytest.raises(ValueError, match="no partition 7"):
                await producer.send_batch(topic, pa.table({"value": [b"v"], "partition": [7]}))
            assert (await (await producer.send_batch(topic, pa.table({"value": pa.array([], pa.binary())})))).rows == 0
            with monkeypatch.context() as patched:
                patched.setitem(sys.modules, "tidelog.records.arrow_rows", None)
                with pytest.raises(NeedsPackage, match="arrow"):
                    await producer.send_batch(topic, pa.table({"value": [b"v"]}))
        with pytest.raises(Closed):
            await producer.send_batch(topic, pa.table({"value": [b"v"]}))

    asyncio.run(scenario())
