"""Where Spark looks for data sources by itself: `spark.read.format("tidelog")` works without registering anything."""

from tidelog.pipelines.datasource import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
