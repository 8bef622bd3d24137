"""`python -m bench.transactions`: what exactly-once costs: throughput, waits, and how many transactions a second.

librdkafka writes to a topic of three replicas on three brokers, acks=all and idempotent, once plainly and once in
transactions that are committed every 100 ms, taking turns. Then many small transactions, of one producer and of several
at once; with `--kafka` these also on one broker beside one node of Apache Kafka.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException, Producer

from bench import report, topics, work_dirs
from bench.client_rows import kafka_node
from bench.cluster_stage import stage
from bench.latencies import Latencies
from bench.peers import NO_FSYNC, tidelog
from bench.results import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import KafkaError, Message

_PATIENCE_S = 60.0
_QUEUED_AT_ONCE = 1_000
_MB = 1e6
_EVERY_S = 0.1
_PLAIN, _TRANSACTIONAL = "plain", "transactions of 100 ms"
_TOPIC = "bench-transactions"


class Amounts(NamedTuple):
    trials: int
    stream_s: float
    """How long one trial writes as fast as it can."""
    paced_s: float
    """How long one trial writes at a steady pace."""
    small_s: float
    """How long one trial makes small transactions."""
    partitions: int = 3
    paced_per_second: int = 1_000
    record_bytes: int = 1024
    producers: int = 8


FULL = Amounts(trials=3, stream_s=5.0, paced_s=5.0, small_s=5.0)
SHORT = Amounts(trials=1, stream_s=1.0, paced_s=1.0, small_s=1.0)


class Writer:
    """A producer that ends a transaction every so often, or none at all, and keeps book of the waits."""

    def __init__(self, bootstrap: str, kind: str, settings: dict[str, str | int | bool]) -> None:
        self._transactional = kind == _TRANSACTIONAL
        common: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "log_level": 2,
        }
        if self._transactional:
            common["transactional.id"] = f"bench-{time.monotonic_ns()}"
        self._producer = Producer({**common, **settings})
        self._producer.list_topics(_TOPIC, timeout=_PATIENCE_S)
        self.waits_s: list[float] = []
        self.commits_s: list[float] = []
        if self._transactional:
            self._producer.init_transactions(_PATIENCE_S)
            self._producer.begin_transaction()
        self._next_end_s = time.perf_counter() + _EVERY_S

    def write_many(self, value: bytes, count: int, partition: int) -> int:
        queued = self._producer.produce_batch(_TOPIC, [{"value": value}] * count, partition=partition)
        self._producer.poll(0 if queued else 0.005)
        self._end_if_due()
        return queued

    def write_one(self, value: bytes, partition: int) -> None:
        self._producer.produce(_TOPIC, value, partition=partition, on_delivery=self._waited(time.perf_counter()))
        self._producer.poll(0)
        self._end_if_due()

    def warm_up(self, value: bytes, partitions: int) -> None:
        """Opens the connections, which is not what is measured."""
        for partition in range(partitions):
            self.write_one(value, partition)
        self._producer.flush(_PATIENCE_S)
        self.waits_s.clear()

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._end_if_due()

    def finish(self) -> None:
        if self._transactional:
            self._end()
            self._producer.abort_transaction(_PATIENCE_S)
        unsent = self._producer.flush(_PATIENCE_S)
        if unsent:
            raise RuntimeError(f"{unsent} records were not acknowledged within {_PATIENCE_S:g} s")

    def _end_if_due(self) -> None:
        if self._transactional and time.perf_counter() >= self._next_end_s:
            self._end()

    def _end(self) -> None:
        began = time.perf_counter()
        self._producer.commit_transaction(_PATIENCE_S)
        self._producer.begin_transaction()
        now = time.perf_counter()
        self.commits_s.append(now - began)
        self._next_end_s = now + _EVERY_S

    def _waited(self, began: float) -> Callable[[KafkaError | None, Message], None]:
        def done(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            self.waits_s.append(time.perf_counter() - began)

        return done


def stream(bootstrap: str, kind: str, amounts: Amounts) -> float:
    """Megabytes a second, as fast as it goes."""
    writer = Writer(bootstrap, kind, {"queue.buffering.max.messages": 200_000, "delivery.report.only.error": True})
    value = bytes(amounts.record_bytes)
    began, sent, turn = time.perf_counter(), 0, 0
    while time.perf_counter() - began < amounts.stream_s:
        sent += writer.write_many(value, _QUEUED_AT_ONCE, turn % amounts.partitions)
        turn += 1
    writer.finish()
    return sent * amounts.record_bytes / _MB / (time.perf_counter() - began)


class Paced(NamedTuple):
    waits: Latencies
    commits: Latencies


def paced(bootstrap: str, kind: str, amounts: Amounts) -> Paced:
    """Waits for acknowledgements at a pace that nobody finds hard."""
    writer = Writer(bootstrap, kind, {"linger.ms": 5})
    value = bytes(amounts.record_bytes)
    writer.warm_up(value, amounts.partitions)
    began, sent = time.perf_counter(), 0
    while (elapsed_s := time.perf_counter() - began) < amounts.paced_s:
        while sent < elapsed_s * amounts.paced_per_second:
            writer.write_one(value, sent % amounts.partitions)
            sent += 1
        writer.poll(0.001)
    writer.finish()
    return Paced(Latencies(sorted(writer.waits_s)), Latencies(sorted(writer.commits_s)))


def small(bootstrap: str, amounts: Amounts, producers: int, topic: str = _TOPIC) -> tuple[float, Latencies]:
    """Transactions a second, each of one record for each of two partitions, and how long each took."""

    def make(number: int) -> list[float]:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"bench-small-{number}-{time.monotonic_ns()}",
                "linger.ms": 0,
                "log_level": 2,
            }
        )
        producer.init_transactions(_PATIENCE_S)
        took_s = []
        until_s = time.perf_counter() + amounts.small_s
        while (began := time.perf_counter()) < until_s:
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce(topic, bytes(100), partition=partition)
            producer.commit_transaction(_PATIENCE_S)
            took_s.append(time.perf_counter() - began)
        return took_s

    began = time.perf_counter()
    with ThreadPoolExecutor(producers) as pool:
        took_s = sorted(each for made in pool.map(make, range(producers)) for each in made)
    return len(took_s) / (time.perf_counter() - began), Latencies(took_s)


def rows(amounts: Amounts, *, kafka: bool = False) -> Iterator[Row]:
    with stage({"log.segment.delete.delay.ms": "0", "transaction.state.log.num.partitions": "6"}) as on:
        on.create(_TOPIC, amounts.partitions)
        yield from _stream_rows(on.cluster.bootstrap, amounts)
        yield from _paced_rows(on.cluster.bootstrap, amounts)
        yield from _small_rows(on.cluster.bootstrap, amounts)
    if kafka:
        yield from _beside_kafka(amounts)


def _stream_rows(bootstrap: str, amounts: Amounts) -> Iterator[Row]:
    print("measuring: streams", file=sys.stderr)
    trials = [
        {kind: stream(bootstrap, kind, amounts) for kind in (_PLAIN, _TRANSACTIONAL)} for _ in range(amounts.trials)
    ]
    plain, transactional = (max(trial[kind] for trial in trials) for kind in (_PLAIN, _TRANSACTIONAL))
    size = f"{amounts.record_bytes} B"
    yield Row(f"librdkafka produces {size}, acks=all, 3 replicas, {_PLAIN}", plain, "MB/s")
    yield Row(
        f"librdkafka produces {size}, acks=all, 3 replicas, {_TRANSACTIONAL}",
        transactional,
        "MB/s",
        None,
        plain,
        _PLAIN,
    )


def _paced_rows(bootstrap: str, amounts: Amounts) -> Iterator[Row]:
    print("measuring: waits", file=sys.stderr)
    trials = [
        {kind: paced(bootstrap, kind, amounts) for kind in (_PLAIN, _TRANSACTIONAL)} for _ in range(amounts.trials)
    ]
    best = {
        kind: min((trial[kind] for trial in trials), key=lambda each: each.waits.at(0.99))
        for kind in (_PLAIN, _TRANSACTIONAL)
    }
    for kind in (_PLAIN, _TRANSACTIONAL):
        waits = best[kind].waits
        yield Row(
            f"acknowledgement at {amounts.paced_per_second:,} records/s, 99 %, {kind}",
            waits.at(0.99) * 1000,
            "ms",
            None,
            None if kind == _PLAIN else best[_PLAIN].waits.at(0.99) * 1000,
            "" if kind == _PLAIN else _PLAIN,
            f"median {waits.at(0.5) * 1000:.1f}, slowest {waits.at(1.0) * 1000:.1f} ms of {len(waits.ordered_s):,}",
        )
    commits = best[_TRANSACTIONAL].commits
    yield Row(
        "commit of a transaction of 100 ms, 99 %",
        commits.at(0.99) * 1000,
        "ms",
        note=f"median {commits.at(0.5) * 1000:.1f}, slowest {commits.at(1.0) * 1000:.1f} ms "
        f"of {len(commits.ordered_s):,}",
    )


def _small_rows(bootstrap: str, amounts: Amounts) -> Iterator[Row]:
    for producers in (1, amounts.producers):
        print(f"measuring: small transactions, {producers} at once", file=sys.stderr)
        rate, took = max(
            (small(bootstrap, amounts, producers) for _ in range(amounts.trials)), key=lambda each: each[0]
        )
        yield Row(_small_name(producers, "3 replicas"), rate, "/s", note=_waits(took))


def _small_name(producers: int, where: str) -> str:
    return f"small transactions, {producers} producer{'s' if producers > 1 else ''}, {where}"


def _waits(took: Latencies) -> str:
    return f"each took {took.at(0.5) * 1000:.1f} ms (median), 99 % {took.at(0.99) * 1000:.1f} ms"


def _beside_kafka(amounts: Amounts) -> Iterator[Row]:
    """On one broker each, neither of which syncs before it answers."""
    place = work_dirs.on_disk()
    with ExitStack() as stack:
        path = stack.enter_context(work_dirs.work_dir(place))
        kafka = stack.enter_context(kafka_node(path / "kafka"))
        broker = stack.enter_context(tidelog(place, NO_FSYNC))
        for producers in (1, amounts.producers):
            print(f"measuring: small transactions beside Kafka, {producers} at once", file=sys.stderr)
            best: dict[str, tuple[float, Latencies]] = {}
            for _ in range(amounts.trials):
                for name, bootstrap in (("ours", broker.bootstrap), ("theirs", kafka.bootstrap)):
                    with topics.topic(int(bootstrap.rpartition(":")[2]), _TOPIC, partitions=2) as topic:
                        found = small(bootstrap, amounts, producers, topic)
                    best[name] = max(best.get(name, found), found, key=lambda each: each[0])
            rate, took = best["ours"]
            theirs, took_theirs = best["theirs"]
            note = f"{_waits(took)}; Kafka's {_waits(took_theirs)}"
            yield Row(_small_name(producers, "one broker"), rate, "/s", None, theirs, "Kafka", note)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.parser(
        "bench.transactions", "Measure what exactly-once costs.", short="a quick look: short trials, one each"
    )
    parser.add_argument("--kafka", action="store_true", help="small transactions also beside Apache Kafka")
    options = parser.parse_args(arguments)
    amounts = SHORT if options.short else FULL
    began = time.monotonic()
    measured = list(rows(amounts, kafka=options.kafka))
    report.report(measured, f"transactions; {time.monotonic() - began:.0f} s, best of {amounts.trials}", options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
