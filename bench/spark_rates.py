"""Rows a second, of one query."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.process_facts import tree_cpu_seconds
from bench.spark_ways import source, started, table

if TYPE_CHECKING:
    from bench.spark_ways import Stage, Way

_BATCHES = 5


class Rate(NamedTuple):
    wall: float
    """Rows per second."""
    cpu: float
    """Rows per second of processor time, of all processes, from the start of the query to its end."""


def table_rate(stage: Stage, kind: str, topic: str, count: int) -> Rate:
    print(f"measuring: table {topic}, {kind}", file=sys.stderr)
    frame = table(stage, kind, topic)
    began, cpu_s = time.perf_counter(), tree_cpu_seconds()
    frame.write.format("noop").mode("overwrite").save()
    return Rate(count / (time.perf_counter() - began), count / (tree_cpu_seconds() - cpu_s))


def stream_rate(stage: Stage, way: Way, topic: str, target: str, count: int) -> Rate:
    """Over all that there is, in some batches. The first one is not counted: connections and processes start in it."""
    print(f"measuring: stream {topic} to {way.shape}, {way.name}", file=sys.stderr)
    per_batch = -(-count // _BATCHES)
    frame = source(stage, way, topic, startingOffsets="earliest", maxOffsetsPerTrigger=per_batch)
    cpu_s = tree_cpu_seconds()
    with started(stage, way, frame, target, ends_by_itself=True) as query:
        query.awaitTermination()
        cpu_s = tree_cpu_seconds() - cpu_s
        batches = [batch for batch in query.recentProgress if batch.numInputRows]
    handled = sum(batch.numInputRows for batch in batches)
    if handled != count:
        raise RuntimeError(f"{way.name} handled {handled} rows of {count}")
    settled = batches[1:]
    wall_s = sum(batch.durationMs["triggerExecution"] for batch in settled) / 1000
    return Rate(sum(batch.numInputRows for batch in settled) / wall_s, count / cpu_s)
