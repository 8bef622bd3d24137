"""Topics as tables and streams, in a real Spark session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.client import Admin, Producer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest_plugins = ["spark_fixtures"]

COUNT = 300


def fill(bootstrap: str, topic: str) -> None:
    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions=3)
        async with Producer(bootstrap) as producer:
            for number in range(COUNT):
                await producer.send(topic, b"%d" % number, key=b"k%d" % (number % 7))

    asyncio.run(work())


def test_a_topic_is_a_table(spark: SparkSession, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic)
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = reader.load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(COUNT))


def test_a_topic_is_a_stream(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> None:
    fill(bootstrap, topic)
    stream = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    name = topic.replace("-", "_")
    query = (
        stream.selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(row.number for row in spark.table(name).collect()) == list(range(COUNT))
