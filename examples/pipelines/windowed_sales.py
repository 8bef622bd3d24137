"""What each product sells in an hour. A window is written once, when no order for it is waited for any longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidelog.pipelines import json, read, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

orders = read.topic(
    "orders",
    value=json("id long, product string, cents long, at timestamp"),
    watermark=("at", "20 minutes"),
    deduplicate="id",
)


@write.topic("sales-by-hour", key="product", partitions=3)
def sales(orders: DataFrame) -> DataFrame:
    hours = orders.groupBy(F.window("at", "1 hour"), "product")
    return hours.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents")).select(
        F.col("window.start").alias("hour"), "product", "orders", "cents"
    )
