"""Rows to be compared: of our source, of Spark's own Kafka connector, and of a plain consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

OURS, THEIRS = "tidelog", "kafka"
FORMATS = (OURS, THEIRS)
PATIENCE_S = 60.0
"""For hanging, not for slowness."""


class Row(NamedTuple):
    """A record as every reader should see it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None
    """None where there are none, as Spark has it."""


def options_of(bootstrap: str, given: Mapping[str, object]) -> dict[str, str]:
    """Everything as text; committed records only, which is the default of one of the two."""
    common = {"kafka.bootstrap.servers": bootstrap, "kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    return {**common, **{name: str(value) for name, value in given.items()}}


def table(spark: SparkSession, kind: str, bootstrap: str, given: Mapping[str, object]) -> DataFrame:
    return spark.read.format(kind).options(**options_of(bootstrap, given)).load()


def stream(spark: SparkSession, kind: str, bootstrap: str, given: Mapping[str, object]) -> DataFrame:
    wanted = {"startingOffsets": "earliest", **given}
    return spark.readStream.format(kind).options(**options_of(bootstrap, wanted)).load()


def rows_of(frame: DataFrame) -> list[Row]:
    """In the order of topics, partitions and offsets."""
    timestamp = "unix_millis(timestamp) AS timestamp_ms"
    columns = ("topic", "partition", "offset", "key", "value", timestamp, "timestampType", "headers")
    return sorted(map(_row, frame.selectExpr(*columns).collect()), key=_place)


def streamed_rows(frame: DataFrame, checkpoint: Path) -> tuple[list[Row], int]:
    """Everything that there is, in batches; and how many it took."""
    name = f"rows_{checkpoint.name.replace('-', '_')}"
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch.numInputRows]
    return rows_of(frame.sparkSession.table(name)), len(batches)


def consumed_rows(bootstrap: str, partitions: Mapping[str, int], level: str = "read_committed") -> list[Row]:
    """All records of topics, each with so many partitions, as confluent-kafka finds them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, number, 0) for topic, count in partitions.items() for number in range(count)]
    found: list[Row] = []
    left = len(places)
    try:
        consumer.assign(places)
        while left:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "nothing came, not even the end of a partition"
            error = message.error()
            if error is None:
                found.append(_consumed(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left -= 1
    finally:
        consumer.close()
    return sorted(found, key=_place)


def _place(row: Row) -> tuple[str, int, int]:
    return row[:3]


def _row(row: SparkRow) -> Row:
    headers = row.headers and tuple((each.key, _bytes(each.value)) for each in row.headers)
    fields = (row.topic, row.partition, row.offset, _bytes(row.key), _bytes(row.value))
    return Row(*fields, row.timestamp_ms, row.timestampType, headers)


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _consumed(message: Message) -> Row:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    kind, timestamp_ms = message.timestamp()
    headers = tuple((each[0], _bytes(each[1])) for each in message.headers() or ())  # type: ignore[arg-type]
    # librdkafka counts the types of timestamps from 1 on.
    return Row(topic, partition, offset, key, value, timestamp_ms, kind - 1, headers or None)
