"""Topics as tables and streams in a real Spark session: that Spark and the source understand each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from source_driving import create, numbers, produce, with_admin

from tidelog.client import Admin, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.testing import StartBroker

pytest_plugins = ["spark_fixtures"]
pytestmark = pytest.mark.timeout(900)

COUNT = 300
PUSHING = "spark.sql.python.filterPushdown.enabled"


def table(spark: SparkSession, bootstrap: str, topic: str, **options: object) -> DataFrame:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    given = {"subscribe": topic, "startingOffsets": "earliest", **options}
    return reader.options(**{name: str(value) for name, value in given.items()}).load()


def run_once(frame: DataFrame, directory: Path) -> StreamingQuery:
    """Everything there is, into files, which outlive the query."""
    query = (
        frame.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("json")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def written(spark: SparkSession, directory: Path) -> list[str]:
    return sorted(row.value for row in spark.read.json(str(directory / "rows")).collect())


def texts(values: list[bytes]) -> list[str]:
    return sorted(value.decode() for value in values)


def last_line(error: PySparkException) -> str:
    """What a user sees at the end of Spark's error."""
    raised = re.compile(r"(Error|TopicMissing|Unreadable|DataLost|ForeignCheckpoint): ")
    return [line for line in str(error).split("JVM stacktrace")[0].splitlines() if raised.search(line)][-1]


def test_a_topic_is_a_table(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    for partition in range(3):
        produce(bootstrap, topic, numbers(partition * 100, partition * 100 + 100), partition=partition)
    rows = table(spark, bootstrap, topic, includeHeaders=True, minPartitions=7)
    assert [int(row.value) for row in rows.orderBy("partition", "offset").collect()] == list(range(COUNT))
    table(spark, bootstrap, topic, columns="offset").createOrReplaceTempView("offsets")
    assert spark.sql("SELECT sum(offset) AS total FROM offsets").collect()[0].total == 3 * sum(range(100))


def test_uses_of_a_table_do_not_meddle_with_each_other(spark: SparkSession, bootstrap: str, topic: str) -> None:
    """Spark keeps what the last filters led to, and reads that for whoever uses the table next."""
    create(bootstrap, topic, 2)
    for partition in range(2):
        produce(bootstrap, topic, numbers(0, 100), partition=partition)
    rows = table(spark, bootstrap, topic)
    assert spark.conf.get(PUSHING) == "true"
    assert rows.where("partition = 1").count() == 100
    assert rows.count() == 200
    assert rows.where("partition = 1").union(rows.where("partition = 0")).count() == 200
    assert rows.where("offset < 10").union(rows).count() == 220
    assert rows.alias("a").join(rows.where("offset = 5").alias("b"), "partition").count() == 200


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_give_the_same_with_and_without_pushing(
    spark: SparkSession, bootstrap: str, topic: str, pushed: str
) -> None:
    create(bootstrap, topic, 2)
    for partition in range(2):
        produce(bootstrap, topic, numbers(0, 100), partition=partition)
    before = spark.conf.get(PUSHING) or "false"
    spark.conf.set(PUSHING, pushed)
    try:
        rows = table(spark, bootstrap, topic, pushFilters=True)
        found = rows.where("partition = 1 AND offset >= 40 AND offset < 43 AND timestamp > '2020-01-01 00:00:00'")
        assert sorted(int(row.value) for row in found.collect()) == [40, 41, 42]
        assert rows.where("timestamp > '2100-01-01 00:00:00'").count() == 0
        assert rows.where("topic <> 'other' AND value = CAST('7' AS BINARY)").count() == 2
        tasks = rows.where("partition = 1 AND offset < 10").rdd.getNumPartitions()
        assert tasks == (1 if pushed == "true" else 2)
    finally:
        spark.conf.set(PUSHING, before)


def test_a_stream_that_begins_at_the_end_of_a_busy_topic_reads_nothing_older(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """And leaves nothing out, also if its first batch fails and is repeated by another run."""
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, COUNT))
    sent = COUNT
    seen: list[int] = []

    def refuse(batch: DataFrame, _number: int) -> None:
        if not batch.isEmpty():
            raise ValueError("the first batch with rows")

    def take(batch: DataFrame, _number: int) -> None:
        seen.extend(int(row.value) for row in batch.orderBy("offset").collect())

    def start(receive: Callable[[DataFrame, int], None]) -> StreamingQuery:
        rows = stream(spark, bootstrap, topic, startingOffsets="latest")
        return rows.writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(receive).start()

    query = start(refuse)
    while query.isActive:
        produce(bootstrap, topic, numbers(sent, sent + 5))
        sent += 5
    query = start(take)
    query.processAllAvailable()
    query.stop()
    assert seen == list(range(seen[0], sent))
    assert seen[0] >= COUNT


def test_a_table_with_a_filter_is_planned_anew_each_time(spark: SparkSession, bootstrap: str, topic: str) -> None:
    """Without one Spark keeps what it has planned at first, which the page about the source says."""
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    plain = table(spark, bootstrap, topic)
    filtered = plain.where("offset >= 0")
    assert (plain.count(), filtered.count()) == (5, 5)
    produce(bootstrap, topic, numbers(5, 8))
    assert (plain.count(), filtered.count()) == (5, 8)


def test_a_stream_goes_on_where_it_was(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create(bootstrap, topic, 2)
    produce(bootstrap, topic, numbers(0, 100), partition=0)
    options = {"maxOffsetsPerTrigger": 40, "kafka.group.id": f"group of {topic}"}
    first = run_once(stream(spark, bootstrap, topic, **options), tmp_path)
    assert [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]] == [40, 40, 20]
    assert written(spark, tmp_path) == texts(numbers(0, 100))
    assert json.loads(first.recentProgress[0]["sources"][0]["endOffset"])[topic] == {"0": 40, "1": 0}
    with_admin(bootstrap, lambda admin: admin.add_partitions(topic, 3))
    produce(bootstrap, topic, numbers(100, 105), partition=2)
    produce(bootstrap, topic, numbers(105, 110), partition=0)
    run_once(stream(spark, bootstrap, topic, **options), tmp_path)
    assert written(spark, tmp_path) == texts(numbers(0, 110))

    async def committed(admin: Admin) -> dict[TopicPartition, int]:
        return {at: commit.offset for at, commit in (await admin.list_group_offsets(f"group of {topic}")).items()}

    found = with_admin(bootstrap, committed)
    assert found == {TopicPartition(topic, 0): 105, TopicPartition(topic, 1): 0, TopicPartition(topic, 2): 5}


def test_a_stream_that_lost_records_says_which(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    run_once(stream(spark, bootstrap, topic), tmp_path)
    produce(bootstrap, topic, numbers(10, 20))
    with_admin(bootstrap, lambda admin: admin.delete_records({TopicPartition(topic, 0): 15}))
    with pytest.raises(StreamingQueryException) as caught:
        run_once(stream(spark, bootstrap, topic), tmp_path)
    assert f"DataLost: {topic}-0: offsets 10 to 14 were to be read" in last_line(caught.value)
    run_once(stream(spark, bootstrap, topic, failOnDataLoss=False), tmp_path)
    assert written(spark, tmp_path) == texts(numbers(0, 10) + numbers(15, 20))


def test_a_checkpoint_of_another_query_is_refused(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-other"):
        create(bootstrap, name)
        produce(bootstrap, name, numbers(0, 10))
    run_once(stream(spark, bootstrap, f"{topic}-other"), tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        run_once(stream(spark, bootstrap, topic), tmp_path)
    assert f"ForeignCheckpoint: the checkpoint has positions in {topic}-other-0, but this query reads" in last_line(
        caught.value
    )
    run_once(stream(spark, bootstrap, f"{topic}-other"), tmp_path)
    assert written(spark, tmp_path) == texts(numbers(0, 10)), "nothing of the wrong topic, nothing twice"


def bad_input(topic: str) -> list[tuple[dict[str, Any], str]]:
    return [
        (
            {"startingOffset": "earliest"},
            "OptionError: there is no option startingoffset: did you mean startingOffsets?",
        ),
        ({"subscribe": f"{topic}-nope"}, f"TopicMissing: topic {topic}-nope does not exist"),
        (
            {"startingOffsets": f'{{"{topic}": {{"0": 99}}}}'},
            f"DataLost: {topic}-0: reading was to begin at offset 99, but what can be read",
        ),
    ]


def test_bad_input_is_one_clear_error_each(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 5))
    for options, message in bad_input(topic):
        with pytest.raises(AnalysisException) as caught:
            table(spark, bootstrap, topic, **options).count()
        assert message in last_line(caught.value)
    reader = spark.read.format("tidelog").schema("value STRING").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(AnalysisException) as caught:
        reader.option("subscribe", topic).load().collect()
    assert "SourceError: column value is of type binary, not string" in last_line(caught.value)


def test_a_damaged_batch_is_named(spark: SparkSession, fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [b"will be damaged"])
    (segment,) = Path(broker.data_dir).glob(f"{topic}-0/*.log")
    segment.write_bytes(segment.read_bytes().replace(b"will", b"WILL"))
    with pytest.raises(PySparkException) as caught:
        table(spark, broker.bootstrap, topic).collect()
    assert f"Unreadable: {topic}-0 cannot be read from offset 0 on" in last_line(caught.value)
