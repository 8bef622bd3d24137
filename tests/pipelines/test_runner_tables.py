"""Tables of pipelines in a real session: joined with a stream, they are seen as they are at each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from source_driving import create

from tidelog.client.blocking.producer import Producer
from tidelog.pipelines import json, read
from tidelog.pipelines.runner.beginnings import Beginnings
from tidelog.pipelines.runner.directory import PipelineDirectory
from tidelog.pipelines.runner.reading import SourceReader
from tidelog.pipelines.runner.schemas import Schemas

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytest_plugins = ["spark_fixtures"]
pytestmark = pytest.mark.timeout(900)


def test_a_table_is_read_anew_for_every_batch(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create(bootstrap, topic)
    directory = PipelineDirectory(tmp_path / "state", "sales")
    directory.path.mkdir(parents=True)
    schemas, beginnings = Schemas(spark, directory, tmp_path), Beginnings(directory)
    reader = SourceReader(spark, schemas, beginnings, {"kafka.bootstrap.servers": bootstrap})
    products = reader.frame("products", read.table(topic, key="product", value=json("name string")), "unused")
    orders = tmp_path / "orders"
    orders.mkdir()
    stream = spark.readStream.schema("product string").json(str(orders))
    seen: list[tuple[str, str]] = []

    def take(batch: DataFrame, _number: int) -> None:
        seen.extend((row["product"], row["name"]) for row in batch.collect())

    joined = stream.join(products, "product").writeStream.foreachBatch(take)
    query = joined.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with Producer(bootstrap) as producer:
            for name in ("one", "two", "three"):
                producer.send_and_wait(topic, b'{"name": "%s"}' % name.encode(), key=b"a")
                (tmp_path / name).write_text('{"product": "a"}', encoding="utf-8")
                (tmp_path / name).rename(orders / f"{name}.json")
                query.processAllAvailable()
    finally:
        query.stop()
    assert seen == [("a", "one"), ("a", "two"), ("a", "three")]
