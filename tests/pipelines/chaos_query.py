"""A program: copies a topic into another one through Spark, exactly once, until it is killed or has copied everything.

It prints a line when the query has begun, and one for each batch.
"""

from __future__ import annotations

import argparse
import json
import sys

from pyspark.sql import functions as f

from tidelog.pipelines.session.session import build_session

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
    parser.add_argument("--target", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--to-the-end", action="store_true")
    arguments = parser.parse_args()

    spark = build_session(arguments.master, "chaos", arguments.conf, short_run=True)
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
    )
    if not arguments.to_the_end:
        rows = rows.option("maxOffsetsPerTrigger", ROWS_OF_A_BATCH)
    copied = rows.load().select("key", f.concat(f.col("value").cast("string"), f.lit(" copied")).alias("value"))
    writing = (
        copied.repartition(3, "key")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.target)
        .option("checkpointLocation", arguments.checkpoint)
    )
    query = (writing.trigger(availableNow=True) if arguments.to_the_end else writing).start()
    tell("begun")
    told = -1
    while not query.awaitTermination(LOOK_EVERY_S):  # type: ignore[arg-type] # takes fractions, too
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > told:
            told = progress["batchId"]
            tell(f"batch {told}")


if __name__ == "__main__":
    main()
