"""A Declarative Pipeline: orders of a topic, of which the large ones go to another topic, each exactly once."""

from __future__ import annotations

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

spark = SparkSession.active()
brokers = {"kafka.bootstrap.servers": str(spark.conf.get("spark.orders.brokers"))}

pipelines.create_sink("large_orders", "tidelog", {**brokers, "topic": "large-orders"})


@pipelines.temporary_view
def orders() -> DataFrame:
    source = {**brokers, "subscribe": "orders", "startingOffsets": "earliest"}
    records = spark.readStream.format("tidelog").options(**source).load()
    order = sql.from_json(records.value.cast("string"), "id STRING, amount INT")
    return records.select("key", order.alias("order")).select("key", "order.*")


@pipelines.append_flow(target="large_orders")
def keep_large() -> DataFrame:
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.select("key", sql.to_json(sql.struct("id", "amount")).alias("value"))
