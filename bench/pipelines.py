"""`python -m bench.pipelines`: our source and sink on Spark beside Spark's own Kafka connector, on one broker.

All run in one session, with the settings of ours, and take turns; of several trials the fastest counts. A rate is rows
over the time of the batches that had some, as Spark tells it: how long queries take to start is not in it. That is
measured apart, by programs that start from nothing.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer

from bench import report, topics, work_dirs
from bench.peers import NO_FSYNC, tidelog
from bench.results import Row, ratio_at_least
from bench.spark_peer import NoConnectorError, connector_jars
from bench.spark_rates import Rate, stream_rate, table_rate
from bench.spark_starts import first_results
from bench.spark_waits import Waits, waits
from bench.spark_ways import AT_LEAST_ONCE, COUNTS, EXACTLY_ONCE, NOWHERE, OURS, THEIRS, TO_TOPIC, Stage, Way
from tidelog.pipelines.session import build_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.testing.broker_process import BrokerProcess

RECORD_BYTES = (100, 1024)
CONNECTOR = "Spark's connector"
GROUPS = ("rates", "waits", "starts")
_PARTITIONS = 4
_KEYS = 1000
_QUEUED_AT_ONCE = 10_000
_PATIENCE_S = 120.0


class Amounts(NamedTuple):
    trials: int
    rows: int
    """Of 100 bytes; of larger ones half as many."""
    waits: int
    """How many records are sent one after the other."""
    starts: int
    """How often each program is started."""


FULL = Amounts(trials=3, rows=2_000_000, waits=40, starts=3)
SHORT = Amounts(trials=1, rows=40_000, waits=8, starts=1)


def rows(
    amounts: Amounts, jars: str | None, sizes: Sequence[int] = RECORD_BYTES, groups: Sequence[str] = GROUPS
) -> Iterator[Row]:
    """`jars` are the connector's; None leaves it out."""
    with tidelog(work_dirs.on_disk(), NO_FSYNC) as broker:
        if "starts" in groups:
            yield from _start_rows(broker, amounts.starts, jars)
        if "rates" in groups or "waits" in groups:
            with _stage(broker, jars) as stage:
                for record_bytes in sizes if "rates" in groups else ():
                    yield from _rate_rows(broker, stage, amounts, record_bytes, connector=jars is not None)
                if "waits" in groups:
                    yield from _wait_rows(broker, stage, amounts, connector=jars is not None)


@contextmanager
def _stage(broker: BrokerProcess, jars: str | None) -> Iterator[Stage]:
    spark = build_session("local[2]", "bench", {} if jars is None else {"spark.jars": jars})
    try:
        with work_dirs.work_dir(work_dirs.on_disk()) as place:
            yield Stage(spark, broker.bootstrap, place)
    finally:
        spark.stop()


def _rate_rows(
    broker: BrokerProcess, stage: Stage, amounts: Amounts, record_bytes: int, *, connector: bool
) -> Iterator[Row]:
    count = amounts.rows if record_bytes == RECORD_BYTES[0] else amounts.rows // 2
    size = f"{record_bytes} B"
    with topics.topic(broker.port, f"bench-source-{record_bytes}", _PARTITIONS) as topic:
        fill(broker.bootstrap, topic, record_bytes, count)

        def table(kind: str) -> Callable[[], Rate]:
            return lambda: table_rate(stage, kind, topic, count)

        def stream(way: Way) -> Callable[[], Rate]:
            def run() -> Rate:
                with topics.topic(broker.port, f"bench-target-{record_bytes}", _PARTITIONS) as target:
                    return stream_rate(stage, way, topic, target, count)

            return run

        def best(*runs: Callable[[], Rate]) -> list[Rate | None]:
            """The last of them is the connector's."""
            return _best(amounts.trials, runs if connector else runs[:-1], len(runs))

        ours, theirs = best(table(OURS), table(THEIRS))
        yield _rate_row(f"a table is read, {size}", ours, theirs)
        ours, theirs = best(*map(stream, NOWHERE))
        yield _rate_row(f"a stream is read, {size}", ours, theirs)
        ours, narrow, theirs = best(*map(stream, COUNTS))
        yield _rate_row(f"a stream is counted by key, {size}", ours, theirs)
        yield _rate_row(f"the same with columns=key, {size}", narrow, theirs)
        exact, plain, theirs = best(*map(stream, TO_TOPIC))
        yield _rate_row(f"topic to topic, at least once, {size}", plain, theirs)
        yield _rate_row(f"topic to topic, exactly once, {size}", exact, theirs)
        yield _rate_row(f"topic to topic, exactly once, {size}", exact, plain, "at least once", goal=0.8)


def _best(trials: int, runs: Sequence[Callable[[], Rate]], wanted: int) -> list[Rate | None]:
    """All take turns; None stands for those that are missing."""
    done = [[run() for run in runs] for _ in range(trials)]
    found = [Rate(max(each.wall for each in of), max(each.cpu for each in of)) for of in zip(*done, strict=True)]
    return [*found, *[None] * (wanted - len(found))]


def _rate_row(name: str, ours: Rate | None, theirs: Rate | None, peer: str = CONNECTOR, goal: float = 1.0) -> Row:
    assert ours is not None, "ours always run"
    if theirs is None:
        return Row(name, ours.wall, "rows/s")
    note = f"per CPU second {ours.cpu:,.0f} and {theirs.cpu:,.0f}, {ours.cpu / theirs.cpu:.2f}"
    return Row(name, ours.wall, "rows/s", ratio_at_least(goal), theirs.wall, peer, note)


def _wait_rows(broker: BrokerProcess, stage: Stage, amounts: Amounts, *, connector: bool) -> Iterator[Row]:
    done: dict[Way, list[Waits]] = {}
    for _ in range(amounts.trials):
        for way in (*NOWHERE, *TO_TOPIC):
            if way.kind == THEIRS and not connector:
                continue
            with topics.topic(broker.port, "bench-asked") as topic, topics.topic(broker.port, "bench-made") as target:
                done.setdefault(way, []).append(waits(stage, way, topic, target, amounts.waits))
    found = {way: Waits(*map(min, zip(*trials, strict=True))) for way, trials in done.items()}

    def row(name: str, way: Way, other: Way, figure: Callable[[Waits], float]) -> Row:
        theirs = figure(found[other]) * 1000 if other in found else None
        note = f"slowest {found[way].slowest_s * 1000:,.0f} ms"
        return Row(name, figure(found[way]) * 1000, "ms", None, theirs, CONNECTOR, note)

    yield row("a small batch, read: median trigger", *NOWHERE, lambda w: w.trigger_s)
    for name, way in (("at least once", AT_LEAST_ONCE), ("exactly once", EXACTLY_ONCE)):
        yield row(f"a small batch, topic to topic, {name}: median trigger", way, TO_TOPIC[-1], lambda w: w.trigger_s)
        yield row(f"from a record to its result, {name}: median", way, TO_TOPIC[-1], lambda w: w.result_s)


def _start_rows(broker: BrokerProcess, starts: int, jars: str | None) -> Iterator[Row]:
    with topics.topic(broker.port, "bench-start", _PARTITIONS) as topic:
        fill(broker.bootstrap, topic, RECORD_BYTES[0], _KEYS)
        ours_s, defaults_s = first_results(broker.bootstrap, topic, _KEYS, starts, jars)
        peer = "our source in Spark's own session" if jars is None else f"{CONNECTOR} in Spark's own session"
        goal = ratio_at_least(2.0)
        # As a speed, so that more is better, as everywhere else.
        yield Row(
            "from nothing to a first result",
            60 / ours_s,
            "/min",
            goal,
            60 / defaults_s,
            peer,
            f"{ours_s:.1f} and {defaults_s:.1f} s",
        )


def fill(bootstrap: str, topic: str, record_bytes: int, count: int) -> None:
    """Records with one of some keys each, evenly over the partitions."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000, "delivery.report.only.error": True}
    )
    messages = [
        {"key": b"key-%d" % (number % _KEYS), "value": bytes(record_bytes)} for number in range(_QUEUED_AT_ONCE)
    ]
    for partition in range(_PARTITIONS):
        left = count // _PARTITIONS
        while left:
            queued = producer.produce_batch(topic, messages[: min(left, len(messages))], partition=partition)
            left -= queued
            producer.poll(0 if queued else 0.01)
    unsent = producer.flush(_PATIENCE_S)
    if unsent:
        raise RuntimeError(f"{unsent} of {count} records were not acknowledged within {_PATIENCE_S:g} s")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.parser("bench.pipelines", "Compare Tidelog's Spark source and sink with Spark's own.")
    parser.add_argument("--only", metavar="NAME", action="append", choices=GROUPS, help=f"one of {', '.join(GROUPS)}")
    options = parser.parse_args(arguments)
    amounts = SHORT if options.short else FULL
    try:
        jars = connector_jars()
    except NoConnectorError as error:
        print(f"no comparison with Spark's own connector: {error}", file=sys.stderr)
        jars = None
    began = time.monotonic()
    found = list(rows(amounts, jars, groups=options.only or GROUPS))
    report.report(found, f"pipelines; {time.monotonic() - began:.0f} s, best of {amounts.trials}", options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
