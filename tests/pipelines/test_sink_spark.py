"""The sink in Spark itself: columns, tasks that fail, queries that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from committed_reader import committed_values
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from sink_runs import PARTITIONS, create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa  # type: ignore[import-untyped]
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytest_plugins = ["spark_fixtures"]
pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).resolve().parent
FILES, LINES = 6, 50


@pytest.fixture
def output(bootstrap: str, topic: str) -> str:
    create_topic(bootstrap, topic)
    return topic


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Numbers from 0 on, in text files of which each makes a batch."""
    directory = tmp_path / "files"
    directory.mkdir()
    for number in range(FILES):
        lines = (str(number * LINES + each) for each in range(LINES))
        (directory / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return directory


def stream(spark: SparkSession, files: Path) -> DataFrame:
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(files))


def start(frame: DataFrame, bootstrap: str, topic: str, checkpoint: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def numbers(bootstrap: str, topic: str) -> list[int]:
    return sorted(int(value) for value in committed_values(bootstrap, topic, PARTITIONS))


def records(bootstrap: str, topic: str, partition: int, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = consumer.consume(count, timeout=60)
    finally:
        consumer.close()
    assert len(found) == count
    return found


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_stream_is_written(
    spark: SparkSession, bootstrap: str, output: str, files: Path, tmp_path: Path, delivery: str
) -> None:
    query = start(stream(spark, files), bootstrap, output, tmp_path / "checkpoint", delivery=delivery)
    assert query.awaitTermination(240)
    assert query.exception() is None
    assert numbers(bootstrap, output) == list(range(FILES * LINES))


def test_every_column_arrives(spark: SparkSession, bootstrap: str, output: str) -> None:
    at = datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    rows = [
        (b"k\x00", "text", output, 1, at, [("a", b"\xff"), ("b", None)]),
        (None, None, output, 1, None, None),
        (b"", "", output, 1, at, []),
    ]
    schema = (
        "key binary, value string, topic string, partition int, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    writer = frame.withColumn("offset", F.lit(7)).write.format("tidelog").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).save()
    first, second, third = records(bootstrap, output, 1, 3)
    assert (first.key(), first.value()) == (b"k\x00", b"text")
    assert first.headers() == [("a", b"\xff"), ("b", None)]
    assert first.timestamp()[1] == round(at.timestamp() * 1000)
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    assert (third.key(), third.value(), third.headers()) == (b"", b"", None)


def test_a_task_that_fails_is_tried_again_and_seen_once(
    spark: SparkSession, bootstrap: str, output: str, files: Path, tmp_path: Path
) -> None:
    """It fails after its rows are written, as its process is killed: the next attempt has another one."""

    def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    frame = stream(spark, files).mapInArrow(fails_at_first, "value string")
    query = start(frame, bootstrap, output, tmp_path / "checkpoint")
    assert query.awaitTermination(240)
    assert query.exception() is None
    assert numbers(bootstrap, output) == list(range(FILES * LINES))


def test_a_batch_whose_task_fails_for_good_is_not_seen_at_all(spark: SparkSession, bootstrap: str, output: str) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            raise RuntimeError("every attempt fails")

    frame = (
        spark.range(100, numPartitions=2).selectExpr("cast(id as string) AS value").mapInArrow(fails, "value string")
    )
    writer = frame.write.format("tidelog").mode("append").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(PySparkException, match="every attempt fails"):
        writer.option("topic", output).save()
    assert numbers(bootstrap, output) == []
    assert len(numbers_written(spark, bootstrap, output)) == 100


def numbers_written(spark: SparkSession, bootstrap: str, topic: str) -> list[int]:
    frame = spark.range(100, numPartitions=2).selectExpr("cast(id as string) AS value")
    frame.write.format("tidelog").mode("append").option("kafka.bootstrap.servers", bootstrap).option(
        "topic", topic
    ).save()
    return numbers(bootstrap, topic)


def test_what_cannot_be_written_is_said_before_anything_is(
    spark: SparkSession, bootstrap: str, output: str, files: Path, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="column 'value' is bigint, but must be string or binary"):
        spark.range(5).selectExpr("id AS value").write.format("tidelog").mode("append").option(
            "kafka.bootstrap.servers", bootstrap
        ).option("topic", output).save()
    query = start(stream(spark, files).selectExpr("value", "1 AS key"), bootstrap, output, tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match="column 'key' is int, but must be string or binary"):
        query.awaitTermination(240)
    assert numbers(bootstrap, output) == []


def test_a_query_that_is_killed_goes_on_where_it_was(bootstrap: str, output: str, files: Path, tmp_path: Path) -> None:
    """Python and Java at once, in the middle of whatever they do."""
    arguments = [bootstrap, output, str(files), str(tmp_path / "checkpoint")]
    program = [sys.executable, str(HERE / "sink_spark_query.py"), *arguments]
    for batches_until_death in (2, FILES + 1):
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stdout is not None
            done = list(islice(process.stdout, batches_until_death))
            assert done
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert numbers(bootstrap, output) == list(range(FILES * LINES))
