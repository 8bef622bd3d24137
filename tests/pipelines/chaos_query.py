"""A program: through Spark, copies a topic into a second one and counts its keys into a third, until it is killed or
has read everything.

It prints a line when the queries have begun, and one for each batch of copies.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from tidelog.pipelines.definition.sinks import write
from tidelog.pipelines.runner.writing import Run, start
from tidelog.pipelines.session.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_OF_A_BATCH = 300
"""Few, so that there are many batches to be interrupted."""
LOOK_EVERY_S = 0.1


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--conf", type=json.loads, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--copies", required=True)
    parser.add_argument("--counts", required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--to-the-end", action="store_true")
    arguments = parser.parse_args()

    spark = build_session(arguments.master, "chaos", arguments.conf, short_run=True)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    counting = start_counting(rows_of(spark, arguments), arguments)
    copying = start_copying(rows_of(spark, arguments), arguments)
    tell("begun")
    told = -1
    while not copying.awaitTermination(LOOK_EVERY_S):  # type: ignore[arg-type] # takes fractions, too
        failure = counting.exception()
        if failure is not None:
            raise failure
        progress = copying.lastProgress
        if progress is not None and progress["batchId"] > told:
            told = progress["batchId"]
            tell(f"batch {told}")
    counting.awaitTermination()


def rows_of(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
    )
    return (rows if arguments.to_the_end else rows.option("maxOffsetsPerTrigger", ROWS_OF_A_BATCH)).load()


def start_copying(rows: DataFrame, arguments: argparse.Namespace) -> StreamingQuery:
    copied = rows.select("key", f.concat(f.col("value").cast("string"), f.lit(" copied")).alias("value"))
    writing = (
        copied.repartition(3, "key")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.copies)
        .option("checkpointLocation", str(arguments.checkpoints / "copies"))
    )
    return (writing.trigger(availableNow=True) if arguments.to_the_end else writing).start()


def start_counting(rows: DataFrame, arguments: argparse.Namespace) -> StreamingQuery:
    """As a pipeline writes what it updates."""
    counts = rows.groupBy(f.col("key").cast("string").alias("key")).count()
    run = Run(
        "counts",
        str(arguments.checkpoints / "counts"),
        None,
        once=arguments.to_the_end,
        kafka={"kafka.bootstrap.servers": arguments.bootstrap},
        beside=arguments.checkpoints,
        show=lambda *_: None,
    )
    query = start(counts, write.topic(arguments.counts, key="key", mode="update"), run)
    assert query is not None, "the rows stream"
    return query


if __name__ == "__main__":
    main()
