"""A table's changes, as change data capture writes them to a topic, into Parquet files by day.

Each change is there once. The table as it is now, or was at any time, is a query over them: docs/pipeline-examples.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.pipelines import Settings, json, read, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

settings = Settings(conf={"spark.sql.session.timeZone": "UTC"})  # days begin at the same time everywhere

row = "struct<id: long, name: string, city: string>"
changes = read.topic(
    "shop.customers",
    value=json(f"op string, before {row}, after {row}, ts_ms long"),
    metadata=["partition", "offset"],
)


@write.parquet(os.environ.get("CUSTOMERS_DIR", "customers-history"), partition_by="day")
def history(changes: DataFrame) -> DataFrame:
    return changes.selectExpr(
        "coalesce(after.id, before.id) AS id",
        "CASE op WHEN 'd' THEN 'delete' WHEN 'u' THEN 'update' ELSE 'insert' END AS change",
        "after.name AS name",
        "after.city AS city",
        "timestamp_millis(ts_ms) AS at",
        "_partition AS partition",
        "_offset AS offset",
        "date(timestamp_millis(ts_ms)) AS day",
    )
