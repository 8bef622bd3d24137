"""The demo's pipeline: what a shop sells in ten minutes, and on what device its customers buy.

Records that cannot be read go to the topic shop.dead-letters. Orders may come a quarter of an hour late.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from tidelog.pipelines import Settings, json, read, view, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

settings = Settings(name="shop")

LATE = ("at", "15 minutes")

clicks = read.topic(
    "demo.clicks", value=json("session string, page string, device string, at timestamp"), watermark=LATE
)


@read.topic(
    "demo.orders",
    value=json(
        "order string, customer string, session string, country string, product string, category string, "
        "amount_cents long, currency string, at timestamp"
    ),
    watermark=LATE,
)
def orders(rows: DataFrame) -> DataFrame:
    percent = "CASE currency WHEN 'USD' THEN 92 WHEN 'GBP' THEN 117 WHEN 'CHF' THEN 104 ELSE 100 END"
    return rows.withColumn("euro_cents", F.expr(f"amount_cents * {percent} DIV 100"))


@write.table("demo.sales", key=["start", "category"], partitions=3)
def sales(orders: DataFrame) -> DataFrame:
    windows = orders.groupBy(F.window("at", "10 minutes"), "category")
    return windows.agg(F.count("*").alias("orders"), F.sum("euro_cents").alias("euro_cents")).select(
        F.col("window.start").alias("start"), "category", "orders", "euro_cents"
    )


@view
def checkouts(clicks: DataFrame) -> DataFrame:
    return clicks.where("page = 'checkout'").selectExpr("session AS visit", "device", "at AS checkout_at")


@write.topic("demo.purchases", key="customer", partitions=3, name="purchases")
@write.parquet(os.environ.get("SHOP_DIR", "shop") + "/purchases", name="archive")
def purchases(orders: DataFrame, checkouts: DataFrame) -> DataFrame:
    soon_after = "session = visit AND at BETWEEN checkout_at AND checkout_at + INTERVAL 10 MINUTES"
    return orders.join(checkouts, F.expr(soon_after)).select(
        "order", "customer", "country", "product", "category", "euro_cents", "device", "at"
    )
