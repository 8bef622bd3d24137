"""Topics as tables, without Spark: what is read, and what is said about what cannot be."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from source_driving import (
    batch_reader,
    create,
    numbers,
    produce,
    produce_transaction,
    read_batch,
    run_tasks,
    source,
    with_admin,
)

from tidelog.client import BrokersUnreachable, Producer, TopicPartition
from tidelog.clock import SystemClock
from tidelog.pipelines.options import OptionError
from tidelog.pipelines.source.errors import DataLost, SourceError
from tidelog.testing.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from tidelog.testing import StartBroker

NOW_MS = SystemClock().now_ms()


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


def test_all_columns_of_a_topic(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    produce(bootstrap, topic, [b"a", None], partition=1)
    rows = read_batch(bootstrap, subscribe=topic, includeHeaders="true")
    assert [list(row) for row in rows] == [list(row) for row in rows[:1]] * 2
    first, second = rows
    assert first["timestamp"] > datetime(2020, 1, 1, tzinfo=UTC)
    assert {**first, "timestamp": None} == {
        "key": None,
        "value": b"a",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": None,
        "timestampType": 0,
        "headers": None,
    }
    assert second["value"] is None


def test_columns_are_chosen_by_option_or_schema(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"a"])
    assert read_batch(bootstrap, subscribe=topic, columns="offset, VALUE") == [{"offset": 0, "value": b"a"}]
    schema = StructType([StructField("offset", LongType()), StructField("partition", IntegerType())])
    assert read_batch(bootstrap, None, schema, subscribe=topic) == [{"offset": 0, "partition": 0}]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("amount", LongType()), "topics have no column amount"),
        (StructField("offset", StringType()), "column offset is of type bigint, not string"),
    ],
)
def test_a_schema_that_topics_do_not_have_is_refused(bootstrap: str, field: StructField, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        source(bootstrap, subscribe="any").reader(StructType([field]))


def test_ranges_end_where_they_were_told_to(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 100), linger_ms=100)  # one batch, of which a part is wanted
    options = {"startingOffsets": f'{{"{topic}": {{"0": 17}}}}', "endingOffsets": f'{{"{topic}": {{"0": 42}}}}'}
    assert values(read_batch(bootstrap, subscribe=topic, **options)) == numbers(17, 42)
    assert values(read_batch(bootstrap, subscribe=topic, **options, maxRecordsPerPartition=10)) == numbers(17, 42)


def test_ranges_are_split_among_tasks(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    produce(bootstrap, topic, numbers(0, 100), partition=0)
    produce(bootstrap, topic, numbers(0, 10), partition=1)
    reader = batch_reader(bootstrap, subscribe=topic, minPartitions=8)
    partitions = reader.partitions()
    assert len(partitions) == 8
    assert len(run_tasks(reader, partitions)) == 110
    reader = batch_reader(bootstrap, subscribe=topic, maxRecordsPerPartition=30)
    assert len(reader.partitions()) == 5


def test_assigned_partitions_and_patterns(bootstrap: str, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        create(bootstrap, name, 2)
        for partition in range(2):
            produce(bootstrap, name, [f"{name} {partition}".encode()], partition=partition)
    assert values(read_batch(bootstrap, assign=f'{{"{topic}": [1]}}')) == [f"{topic} 1".encode()]
    assert len(read_batch(bootstrap, subscribePattern=f"{topic}.*")) == 4
    assert len(read_batch(bootstrap, subscribePattern=topic)) == 2
    assert len(read_batch(bootstrap, subscribePattern=f"{topic}.*", excludeTopics=other)) == 2
    assert len(read_batch(bootstrap, subscribe=f"{topic}, {other}")) == 4


def test_transactions_are_read_when_they_are_committed(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce_transaction(bootstrap, topic, numbers(0, 5), commit=True)
    produce_transaction(bootstrap, topic, numbers(5, 10), commit=False)
    produce(bootstrap, topic, [b"last"])
    produce_transaction(bootstrap, topic, [b"aborted"], commit=False)
    assert values(read_batch(bootstrap, subscribe=topic)) == [*numbers(0, 5), b"last"]
    everything = read_batch(bootstrap, subscribe=topic, kafka__isolation__level="read_uncommitted")
    assert values(everything) == [*numbers(0, 10), b"last", b"aborted"]


def test_a_range_may_end_in_markers_only(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce_transaction(bootstrap, topic, [b"aborted"], commit=False)
    begin = f'{{"{topic}": {{"0": 1}}}}'
    assert read_batch(bootstrap, subscribe=topic) == []
    assert read_batch(bootstrap, subscribe=topic, startingOffsets=begin) == []


COMPACTED = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "4000",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "0",
}


def test_gaps_of_compaction_are_passed_over(fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker({"log.cleaner.backoff.ms": "20", "log.cleaner.dedupe.buffer.size": str(1 << 20)})
    create(broker.bootstrap, topic, **COMPACTED)
    rounds, keys = 60, 10

    async def write() -> None:
        async with Producer(broker.bootstrap, batch_size=300) as producer:
            for number in range(rounds):
                for key in range(keys):
                    await producer.send(topic, b"%d" % number, key=b"%d" % key, partition=0)
            await producer.send(topic, b"x" * 3900, key=b"closes a segment", partition=0)

    asyncio.run(write())
    eventually(lambda: len(read_batch(broker.bootstrap, subscribe=topic)) < 100, "the broker to compact the topic")
    rows = read_batch(broker.bootstrap, subscribe=topic)
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == rounds * keys
    assert {row["key"]: row["value"] for row in rows} == {
        **{b"%d" % key: b"%d" % (rounds - 1) for key in range(keys)},
        b"closes a segment": b"x" * 3900,
    }
    for largest in (7, 100):
        pieces = read_batch(broker.bootstrap, subscribe=topic, maxRecordsPerPartition=largest)
        assert {row["key"]: row["value"] for row in pieces} == {row["key"]: row["value"] for row in rows}


def stamped(bootstrap: str, topic: str, times_ms: list[int]) -> None:
    async def scenario() -> None:
        async with Producer(bootstrap) as producer:
            for number, at_ms in enumerate(times_ms):
                await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=at_ms)

    asyncio.run(scenario())


def test_times_say_where_to_begin_and_end(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    stamped(bootstrap, topic, [NOW_MS + 1000 * n for n in range(10)])
    between = read_batch(bootstrap, subscribe=topic, startingTimestamp=NOW_MS + 2500, endingTimestamp=NOW_MS + 6000)
    assert values(between) == numbers(3, 6)
    by_partition = {
        "startingOffsetsByTimestamp": f'{{"{topic}": {{"0": {NOW_MS + 7000}}}}}',
        "endingOffsetsByTimestamp": f'{{"{topic}": {{"0": {NOW_MS + 99_000}}}}}',
    }
    assert values(read_batch(bootstrap, subscribe=topic, **by_partition)) == numbers(7, 10)
    with pytest.raises(SourceError, match="is as young as"):
        read_batch(bootstrap, subscribe=topic, startingTimestamp=NOW_MS + 99_000)
    late = {"startingTimestamp": NOW_MS + 99_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert read_batch(bootstrap, subscribe=topic, **late) == []


def test_a_batch_begins_where_the_group_is(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    produce(bootstrap, topic, numbers(0, 10), partition=0)
    produce(bootstrap, topic, numbers(10, 12), partition=1)
    with_admin(bootstrap, lambda admin: admin.alter_group_offsets(f"group {topic}", {TopicPartition(topic, 0): 7}))
    options = {"subscribe": topic, "startingOffsets": "group", "kafka__group__id": f"group {topic}"}
    assert sorted(values(read_batch(bootstrap, **options))) == numbers(10, 12) + numbers(7, 10)
    assert values(read_batch(bootstrap, **options, kafka__auto__offset__reset="latest")) == numbers(7, 10)
    with pytest.raises(SourceError, match=f"committed nothing for {topic}-1"):
        read_batch(bootstrap, **options, kafka__auto__offset__reset="none")


# Filters


FILTERS: list[tuple[list[Filter], int, list[bytes]]] = [
    ([GreaterThan(("offset",), 6)], 1, numbers(7, 10)),
    ([GreaterThanOrEqual(("offset",), 2), LessThan(("offset",), 4)], 1, numbers(2, 4)),
    ([LessThanOrEqual(("offset",), 2)], 1, numbers(0, 3)),
    ([EqualTo(("offset",), 5)], 1, numbers(5, 6)),
    ([In(("offset",), (3, 5))], 1, numbers(3, 6)),
    ([EqualTo(("partition",), 1)], 0, []),
    ([EqualTo(("topic",), "other")], 0, []),
    ([EqualTo(("value",), b"3")], 1, numbers(0, 10)),
    ([GreaterThan(("offset",), 60)], 0, []),
]


@pytest.mark.parametrize(("filters", "tasks", "expected"), FILTERS)
def test_filters_leave_out_what_they_do_not_admit(
    bootstrap: str, topic: str, filters: list[Filter], tasks: int, expected: list[bytes]
) -> None:
    create(bootstrap, topic, 1)
    produce(bootstrap, topic, numbers(0, 10))
    reader = batch_reader(bootstrap, subscribe=topic, pushFilters="true")
    reader.pushFilters(filters)
    partitions = reader.partitions()
    assert len(partitions) == tasks
    assert values(run_tasks(reader, partitions)) == expected


def test_filters_leave_out_nothing_unless_they_may(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1)
    produce(bootstrap, topic, numbers(0, 10))
    assert values(read_batch(bootstrap, [GreaterThan(("offset",), 60)], subscribe=topic)) == numbers(0, 10)


def test_times_narrow_a_range_at_its_beginning(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    offsets_ms = [0, 1000, 2000, 500, 3000]
    stamped(bootstrap, topic, [NOW_MS + each for each in offsets_ms])
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=NOW_MS + 1500)
    assert values(
        read_batch(bootstrap, [GreaterThan(("timestamp",), at)], subscribe=topic, pushFilters=True)
    ) == numbers(2, 5)
    assert values(read_batch(bootstrap, [LessThan(("timestamp",), at)], subscribe=topic, pushFilters=True)) == numbers(
        0, 5
    )
    later = at + timedelta(days=1)
    assert read_batch(bootstrap, [GreaterThan(("timestamp",), later)], subscribe=topic, pushFilters=True) == []


def test_a_reader_is_taken_by_spark_with_and_without_filters(bootstrap: str) -> None:
    # How Spark tells whether to insist on its setting.
    pushing = batch_reader(bootstrap, subscribe="any").pushFilters
    assert getattr(pushing, "__func__", None) is DataSourceReader.pushFilters


# What cannot be read


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "no-such-topic"}, "topic no-such-topic does not exist"),
        ({"assign": '{"no-such-topic": [3]}'}, "partition no-such-topic-3 does not exist"),
    ],
)
def test_what_does_not_exist_is_named(bootstrap: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_batch(bootstrap, **options)


def test_every_partition_has_to_be_named(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    with pytest.raises(OptionError, match=f"says nothing about {topic}-1"):
        read_batch(bootstrap, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 0}}}}')
    with pytest.raises(OptionError, match=f"names {topic}-7 at offset 3, which is not among"):
        read_batch(bootstrap, assign=f'{{"{topic}": [0]}}', startingOffsets=f'{{"{topic}": {{"0": 0, "7": 3}}}}')


@pytest.mark.parametrize(
    ("start", "end", "message", "left"),
    [
        (0, 12, "offsets 0 to 3 were to be read, but the partition begins at offset 4", numbers(4, 10)),
        (
            5,
            12,
            "offsets 5 to 11 were to be read, but what can be read of the partition ends at offset 10",
            numbers(5, 10),
        ),
        (11, 12, "reading was to begin at offset 11, but what can be read of the partition ends at offset 10", []),
        (0, 2, "offsets 0 to 1 were to be read, but the partition begins at offset 4", []),
    ],
)
def test_offsets_out_of_range_are_an_error_or_a_warning(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture, start: int, end: int, message: str, left: list[bytes]
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    with_admin(bootstrap, lambda admin: admin.delete_records({TopicPartition(topic, 0): 4}))
    options = {
        "startingOffsets": f'{{"{topic}": {{"0": {start}}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": {end}}}}}',
    }
    with pytest.raises(DataLost, match=f"{topic}-0: {message}"):
        read_batch(bootstrap, subscribe=topic, **options)
    assert values(read_batch(bootstrap, subscribe=topic, **options, failOnDataLoss="false")) == left
    assert "DATA LOSS" in caplog.text
    assert message in caplog.text


def test_records_deleted_after_planning_are_an_error_or_a_warning(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    strict = batch_reader(bootstrap, subscribe=topic)
    lenient = batch_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    planned = [(strict, strict.partitions()), (lenient, lenient.partitions())]
    with_admin(bootstrap, lambda admin: admin.delete_records({TopicPartition(topic, 0): 4}))
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 0 to 9 were to be read, but the partition now begins at"):
        run_tasks(*planned[0])
    assert values(run_tasks(*planned[1])) == numbers(4, 10)
    assert "DATA LOSS" in caplog.text


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_deleted_after_planning_is_data_loss(bootstrap: str, topic: str, anew: bool) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    strict = batch_reader(bootstrap, subscribe=topic)
    lenient = batch_reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    planned = [(strict, strict.partitions()), (lenient, lenient.partitions())]
    with_admin(bootstrap, lambda admin: admin.delete_topic(topic))
    if anew:
        create(bootstrap, topic)
        produce(bootstrap, topic, numbers(0, 20))
    with pytest.raises(DataLost, match=f"{topic} has been deleted" + (" and created anew" if anew else "")):
        run_tasks(*planned[0])
    assert run_tasks(*planned[1]) == []


def test_a_damaged_batch_is_named(fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [b"good"])
    produce(broker.bootstrap, topic, [b"will be damaged"])
    (segment,) = Path(broker.data_dir).glob(f"{topic}-0/*.log")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"will be damaged", b"has been damaged"[:15]))
    with pytest.raises(SourceError, match=f"{topic}-0 cannot be read from offset 1 on: .*damaged"):
        read_batch(broker.bootstrap, subscribe=topic)


def test_nobody_there_is_said(topic: str) -> None:
    with pytest.raises(BrokersUnreachable, match="no broker could be reached"):
        read_batch("127.0.0.1:1", subscribe=topic)
