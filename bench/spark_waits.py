"""How long small batches take, and how long a record is on its way from topic to topic."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.latencies import Latencies
from bench.spark_ways import source, started

if TYPE_CHECKING:
    from bench.spark_ways import Stage, Way

_PATIENCE_S = 120.0
_UNSETTLED = 0.25
"""Of the records, at first: code is compiled and connections are opened meanwhile."""


class Waits(NamedTuple):
    trigger_s: float
    """The median of what Spark tells of its batches."""
    result_s: float
    """The median from sending a record to reading what was made of it; 0 where nothing is made."""
    slowest_s: float


def waits(stage: Stage, way: Way, topic: str, target: str, count: int) -> Waits:
    """One record after the other, each a batch of its own."""
    print(f"measuring: waits, {way.shape}, {way.name}", file=sys.stderr)
    frame = source(stage, way, topic, startingOffsets="earliest")
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 0})
    results_s: list[float] = []
    with (
        closing(_reader(stage.bootstrap, target)) as reader,
        started(stage, way, frame, target, ends_by_itself=False) as query,
    ):
        for number in range(count):
            began = time.perf_counter()
            producer.produce(topic, b"%d" % number, b"key", partition=0)
            producer.flush(_PATIENCE_S)
            if way.shape == "topic":
                _next(reader)
                results_s.append(time.perf_counter() - began)
            query.processAllAvailable()
        triggers_s = [
            batch.durationMs["triggerExecution"] / 1000 for batch in query.recentProgress if batch.numInputRows
        ]
    triggers, results = _settled(triggers_s), _settled(results_s)
    return Waits(triggers.at(0.5), results.at(0.5) if results_s else 0.0, (results if results_s else triggers).at(1.0))


def _settled(waited_s: list[float]) -> Latencies:
    return Latencies(sorted(waited_s[round(len(waited_s) * _UNSETTLED) :]))


def _reader(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def _next(reader: Consumer) -> None:
    message = reader.poll(_PATIENCE_S)
    if message is None:
        raise RuntimeError(f"no result came for {_PATIENCE_S:g} s")
    error = message.error()
    if error is not None:
        raise KafkaException(error)
