"""`python -m bench.replication`: what it costs that three brokers have a record before it is acknowledged.

librdkafka writes to a topic with one replica and acks=1, and to one with three replicas and acks=all, on the same three
brokers, taking turns: as fast as it goes, and one record after the other.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException, Producer

from bench import report
from bench.cluster_stage import stage
from bench.latencies import Latencies
from bench.process_facts import cpu_seconds
from bench.results import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError, Message

    from bench.cluster_stage import Stage

_PATIENCE_S = 60.0
_QUEUED_AT_ONCE = 10_000
_MB = 1e6


class Amounts(NamedTuple):
    trials: int
    bytes: int
    """What one trial writes as fast as it can."""
    single_records: int
    """How many one trial writes one after the other."""
    partitions: int = 3


FULL = Amounts(trials=3, bytes=128 << 20, single_records=2_000)
SHORT = Amounts(trials=1, bytes=8 << 20, single_records=200)


class Kind(NamedTuple):
    topic: str
    replicas: int
    acks: str

    def __str__(self) -> str:
        return f"acks={self.acks}, {self.replicas} replica{'s' if self.replicas > 1 else ''}"


ALONE = Kind("bench-one", 1, "1")
REPLICATED = Kind("bench-three", 3, "all")
LEADER_ONLY = Kind("bench-three", 3, "1")
KINDS = (ALONE, REPLICATED, LEADER_ONLY)
RECORD_BYTES = (100, 1024)


class Stream(NamedTuple):
    megabytes_per_second: float
    cpu_s_per_megabyte: float
    """Processor time of all brokers together."""


def stream(on: Stage, kind: Kind, amounts: Amounts, record_bytes: int) -> Stream:
    """As fast as it goes, over all partitions of the topic."""
    producer = _producer(on, kind, {"queue.buffering.max.messages": 1_000_000, "delivery.report.only.error": True})
    count = amounts.bytes // record_bytes
    messages = [{"value": bytes(record_bytes)}] * min(_QUEUED_AT_ONCE, count)
    cpu_s, began = _cpu_of_brokers(on), time.perf_counter()
    left, turn = count, 0
    while left:
        wanted = messages if left >= len(messages) else messages[:left]
        queued = producer.produce_batch(kind.topic, wanted, partition=turn % amounts.partitions)
        left, turn = left - queued, turn + 1
        producer.poll(0 if queued else 0.01)
    _flush(producer)
    seconds = time.perf_counter() - began
    megabytes = count * record_bytes / _MB
    return Stream(megabytes / seconds, (_cpu_of_brokers(on) - cpu_s) / megabytes)


def one_by_one(on: Stage, kind: Kind, amounts: Amounts, record_bytes: int) -> Latencies:
    """Each record is sent when the one before it is acknowledged."""
    producer = _producer(on, kind, {"linger.ms": 0})
    waits_s: list[float] = []
    for number in range(amounts.single_records):
        began = time.perf_counter()
        producer.produce(kind.topic, bytes(record_bytes), partition=number % amounts.partitions, on_delivery=_check)
        _flush(producer)
        waits_s.append(time.perf_counter() - began)
    return Latencies(sorted(waits_s[amounts.partitions :]))  # the first ones open connections


def _producer(on: Stage, kind: Kind, settings: dict[str, str | int | bool]) -> Producer:
    common = {"bootstrap.servers": on.cluster.bootstrap, "acks": kind.acks, "log_level": 2, "on_delivery": _check}
    producer = Producer({**common, **settings})
    producer.list_topics(kind.topic, timeout=_PATIENCE_S)
    return producer


def _flush(producer: Producer) -> None:
    unsent = producer.flush(_PATIENCE_S)
    if unsent:
        raise RuntimeError(f"{unsent} records were not acknowledged within {_PATIENCE_S:g} s")


def _check(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def _cpu_of_brokers(on: Stage) -> float:
    return sum(cpu_seconds(on.cluster.broker(number).pid) for number in on.cluster.numbers)


def rows(amounts: Amounts) -> Iterator[Row]:
    with stage({"log.segment.delete.delay.ms": "0"}) as on:
        for kind in (ALONE, REPLICATED):
            on.create(kind.topic, amounts.partitions, kind.replicas)
        for record_bytes in RECORD_BYTES:
            yield from _stream_rows(on, amounts, record_bytes)
        yield from _latency_rows(on, amounts, RECORD_BYTES[0])


def _stream_rows(on: Stage, amounts: Amounts, record_bytes: int) -> Iterator[Row]:
    print(f"measuring: streams of {record_bytes} B", file=sys.stderr)
    trials = [{kind: stream(on, kind, amounts, record_bytes) for kind in KINDS} for _ in range(amounts.trials)]
    fastest = {kind: max(trial[kind].megabytes_per_second for trial in trials) for kind in KINDS}
    for kind in KINDS:
        cpu_ms = 1000 * min(trial[kind].cpu_s_per_megabyte for trial in trials)
        yield Row(
            f"librdkafka produces {record_bytes} B, {kind}",
            fastest[kind],
            "MB/s",
            None,
            None if kind is ALONE else fastest[ALONE],
            "" if kind is ALONE else str(ALONE),
            f"{fastest[kind] * _MB / record_bytes:,.0f} records/s; all brokers {cpu_ms:.1f} ms of processor/MB",
        )


def _latency_rows(on: Stage, amounts: Amounts, record_bytes: int) -> Iterator[Row]:
    print("measuring: one record after the other", file=sys.stderr)
    trials = [{kind: one_by_one(on, kind, amounts, record_bytes) for kind in KINDS} for _ in range(amounts.trials)]
    best = {kind: min((trial[kind] for trial in trials), key=lambda each: each.at(0.5)) for kind in KINDS}
    for kind in KINDS:
        found = best[kind]
        yield Row(
            f"one record of {record_bytes} B after the other, {kind}",
            found.at(0.5) * 1000,
            "ms",
            None,
            None if kind is ALONE else best[ALONE].at(0.5) * 1000,
            "" if kind is ALONE else str(ALONE),
            f"median; 90 % {found.at(0.9) * 1000:.2f}, 99 % {found.at(0.99) * 1000:.2f}, "
            f"slowest {found.at(1.0) * 1000:.1f} ms of {len(found.ordered_s):,}",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.parser("bench.replication", "Measure what replicas cost.")
    options = parser.parse_args(arguments)
    amounts = SHORT if options.short else FULL
    began = time.monotonic()
    measured = list(rows(amounts))
    report.report(measured, f"replication; {time.monotonic() - began:.0f} s, best of {amounts.trials}", options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
