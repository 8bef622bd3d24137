"""Spark's own Kafka connector on our brokers: everything that its users do with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import functions as sql
from spark_peers import PATIENCE_S, THEIRS, Row, consumed_rows, options_of, rows_of, stream, streamed_rows, table

if TYPE_CHECKING:
    from pathlib import Path

    from cluster_fixtures import StartCluster
    from peer_brokers import Broker, CreateTopic
    from pyspark.sql import DataFrame, SparkSession

pytest_plugins = ["peer_fixtures", "cluster_fixtures", "spark_peer_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

COUNT = 200
START_MS = 1_700_000_000_000
HEADERS = "array(struct('name' AS key, CAST('x' AS BINARY) AS value), struct('none' AS key, NULL AS value))"


def numbers(spark: SparkSession, first: int = 0, count: int = COUNT) -> DataFrame:
    """Rows for a topic: keys that repeat, values that do not, and headers for every other one."""
    key, value = "CAST(id % 17 AS STRING) AS key", "CAST(id AS STRING) AS value"
    headers = f"IF(id % 2 = 0, {HEADERS}, NULL) AS headers"
    return spark.range(first, first + count).selectExpr(key, value, headers)


def save(frame: DataFrame, bootstrap: str, topic: str) -> None:
    wanted = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
    frame.write.format(THEIRS).options(**wanted).save()


def produce(bootstrap: str, topic: str, values: range, partition: int = 0) -> None:
    """A record for each second from START_MS on."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, str(value), partition=partition, timestamp=START_MS + value * 1000)
    assert producer.flush(PATIENCE_S) == 0


def values_of(rows: list[Row]) -> list[int]:
    return sorted(int(row.value or b"") for row in rows)


def test_what_is_written_as_a_table_is_read_as_one(
    spark_with_connector: SparkSession, peer_broker: Broker, create_topic: CreateTopic, topic: str
) -> None:
    create_topic(topic, 3)
    save(numbers(spark_with_connector), peer_broker.bootstrap, topic)
    rows = rows_of(table(spark_with_connector, THEIRS, peer_broker.bootstrap, {"subscribe": topic}))
    assert rows == consumed_rows(peer_broker.bootstrap, {topic: 3})
    assert values_of(rows) == list(range(COUNT))
    assert {row.headers is None for row in rows if int(row.value or b"") % 2} == {True}
    assert {row.headers and row.headers[1] for row in rows if not int(row.value or b"") % 2} == {("none", None)}


def test_a_stream_goes_from_topic_to_topic_through_restarts(
    spark_with_connector: SparkSession, peer_broker: Broker, create_topic: CreateTopic, topic: str, tmp_path: Path
) -> None:
    bootstrap = peer_broker.bootstrap
    create_topic(topic, 3)
    create_topic(f"{topic}-out", 2)
    for first in (0, COUNT):
        save(numbers(spark_with_connector, first), bootstrap, topic)
        query = (
            stream(spark_with_connector, THEIRS, bootstrap, {"subscribe": topic, "maxOffsetsPerTrigger": 90})
            .select("key", "value", "headers")
            .writeStream.format(THEIRS)
            .options(**{"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-out", "includeHeaders": "true"})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert len([batch for batch in query.recentProgress if batch.numInputRows]) >= 2
    copied = consumed_rows(bootstrap, {f"{topic}-out": 2})
    assert values_of(copied) == list(range(2 * COUNT))
    contents = {(row.key, row.value, row.headers) for row in consumed_rows(bootstrap, {topic: 3})}
    assert {(row.key, row.value, row.headers) for row in copied} == contents


def test_a_stream_follows_a_pattern_to_new_topics_and_partitions(
    spark_with_connector: SparkSession, peer_broker: Broker, create_topic: CreateTopic, topic: str, tmp_path: Path
) -> None:
    bootstrap = peer_broker.bootstrap
    create_topic(f"{topic}-a", 1)
    produce(bootstrap, f"{topic}-a", range(10))
    query = (
        stream(spark_with_connector, THEIRS, bootstrap, {"subscribePattern": f"{topic}-[a-c]"})
        .writeStream.format("memory")
        .queryName("followed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        create_topic(f"{topic}-b", 2)
        create_topic(f"{topic}-z", 1)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(f"{topic}-a", 2)])[f"{topic}-a"].result(PATIENCE_S)
        produce(bootstrap, f"{topic}-a", range(10, 20), partition=1)
        produce(bootstrap, f"{topic}-b", range(20, 30), partition=1)
        produce(bootstrap, f"{topic}-z", range(30, 40))
        query.processAllAvailable()
    finally:
        query.stop()
    assert values_of(rows_of(spark_with_connector.table("followed"))) == list(range(30))


def test_times_and_offsets_bound_a_table(
    spark_with_connector: SparkSession, peer_broker: Broker, create_topic: CreateTopic, topic: str
) -> None:
    bootstrap = peer_broker.bootstrap
    create_topic(topic, 2, {"retention.ms": "-1"})
    produce(bootstrap, topic, range(50), partition=0)
    produce(bootstrap, topic, range(50, 100), partition=1)

    def found(**given: object) -> list[int]:
        return values_of(rows_of(table(spark_with_connector, THEIRS, bootstrap, {"subscribe": topic, **given})))

    times = json.dumps({topic: {"0": START_MS + 40_500, "1": START_MS + 60_000}})
    assert found(startingOffsetsByTimestamp=times) == [*range(41, 50), *range(60, 100)]
    assert found(startingTimestamp=START_MS + 30_000, endingTimestamp=START_MS + 55_000) == [*range(30, 55)]
    starts, ends = json.dumps({topic: {"0": 7, "1": -2}}), json.dumps({topic: {"0": 9, "1": -1}})
    assert found(startingOffsets=starts, endingOffsets=ends, minPartitions=5) == [7, 8, *range(50, 100)]
    assigned = table(spark_with_connector, THEIRS, bootstrap, {"assign": json.dumps({topic: [1]})})
    assert values_of(rows_of(assigned)) == [*range(50, 100)]


def test_aborted_transactions_are_not_read(
    spark_with_connector: SparkSession, peer_broker: Broker, create_topic: CreateTopic, topic: str, tmp_path: Path
) -> None:
    bootstrap = peer_broker.bootstrap
    create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        for value in range(number * 10, number * 10 + 10):
            producer.produce(topic, str(value), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    committed = [value for value in range(60) if value // 10 % 2 == 0]

    def read(level: str) -> DataFrame:
        given = {"subscribe": topic, "kafka.isolation.level": level}
        return table(spark_with_connector, THEIRS, bootstrap, given)

    assert values_of(rows_of(read("read_committed"))) == committed
    assert values_of(rows_of(read("read_uncommitted"))) == list(range(60))
    frame = stream(spark_with_connector, THEIRS, bootstrap, {"subscribe": topic, "maxOffsetsPerTrigger": 25})
    rows, batches = streamed_rows(frame, tmp_path / f"{topic}-rows")
    assert values_of(rows) == committed
    assert batches >= 2


def test_it_works_on_a_cluster_whose_leaders_move(
    spark_with_connector: SparkSession, start_cluster: StartCluster, topic: str, tmp_path: Path
) -> None:
    cluster = start_cluster()
    cluster.create_topic(topic, partitions=6)
    cluster.create_topic(f"{topic}-out", partitions=6)
    bootstrap = cluster.bootstrap
    save(numbers(spark_with_connector), bootstrap, topic)
    frame = stream(spark_with_connector, THEIRS, bootstrap, {"subscribe": topic, "maxOffsetsPerTrigger": 60})
    counted = frame.withColumn("twice", sql.expr("CAST(CAST(value AS STRING) AS INT) * 2"))
    query = (
        counted.selectExpr("key", "CAST(twice AS STRING) AS value")
        .writeStream.format(THEIRS)
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-out"})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        cluster.stop(cluster.leader(topic, 0))
        save(numbers(spark_with_connector, COUNT), bootstrap, topic)
        query.processAllAvailable()
    finally:
        query.stop()
    given = options_of(bootstrap, {"subscribe": f"{topic}-out"})
    written = values_of(rows_of(spark_with_connector.read.format(THEIRS).options(**given).load()))
    assert sorted(set(written)) == [2 * value for value in range(2 * COUNT)]  # its sink may repeat what is retried
