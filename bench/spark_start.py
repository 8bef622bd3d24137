"""`python -m bench.spark_start WAY BOOTSTRAP TOPIC JARS`: a program that starts Spark and counts a topic's records.

It is what the bench of pipelines starts and watches: it prints the count as soon as it has it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUR_SESSION, SPARKS_SESSION = "our session", "Spark's session"


def our_session() -> SparkSession:
    from tidelog.pipelines.session import build_session  # noqa: PLC0415 - each way imports what it needs

    return build_session("local[2]", "bench", short_run=True)


def sparks_session(jars: str) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - same

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    return (builder.config("spark.jars", jars) if jars else builder).getOrCreate()


def count(spark: SparkSession, kind: str, bootstrap: str, topic: str) -> int:
    """By a stream, as pipelines are streams."""
    reader = spark.readStream.format(kind).options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = reader.load().groupBy().count().writeStream.format("memory").queryName("counted")
        query = (
            writer.outputMode("complete").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        return int(spark.table("counted").collect()[0][0])


def main() -> None:
    way, bootstrap, topic, jars = sys.argv[1:]
    session = our_session() if way == OUR_SESSION else sparks_session(jars)
    kind = "tidelog" if way == OUR_SESSION or not jars else "kafka"
    print(f"counted {count(session, kind, bootstrap, topic)}", flush=True)
    session.stop()


if __name__ == "__main__":
    main()
