"""Orders with what is known of their customers, who are the latest records of a compacted topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidelog.pipelines import json, read, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

orders = read.topic("orders", value=json("id long, customer string, product string, cents long"))
customers = read.table("customers", key="customer", value=json("name string, city string"))


@write.topic("orders-with-customers", key="customer", partitions=3)
def orders_with_customers(orders: DataFrame, customers: DataFrame) -> DataFrame:
    # Small enough to be sent to every task. An order of somebody unknown is kept.
    return orders.join(F.broadcast(customers), "customer", "left")
