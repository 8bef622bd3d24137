"""`python -m bench.client`: Tidelog's Python client beside kafka-python, aiokafka and confluent-kafka, on one broker.

Each library runs in a process of its own, all take turns, and of several trials the fastest counts. On a busy machine
look at the records per second of the client's own processor time, which the remarks tell.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench import librdkafka, report, topics, work_dirs
from bench.peers import NO_FSYNC, tidelog
from bench.results import Row, ratio_at_least
from tidelog.records import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.testing.broker_process import BrokerProcess

RECORD_BYTES = (100, 1024)
_PARTITIONS = 4
_PATIENCE_S = 600.0


class Amounts(NamedTuple):
    trials: int
    produced: int
    """Records of 100 bytes; of larger ones half as many."""
    consumed: int


FULL = Amounts(trials=3, produced=200_000, consumed=600_000)
SHORT = Amounts(trials=1, produced=3_000, consumed=6_000)


class Contest(NamedTuple):
    """One way of ours, and those that it is held against."""

    name: str
    ours: str
    others: tuple[tuple[str, str, bool], ...]
    """The library, its way, and whether being ahead of it is the goal."""


PRODUCING = (
    Contest(
        "produce records",
        "tidelog_produce",
        (
            ("kafka-python", "kafka_python_produce", True),
            ("aiokafka", "aiokafka_produce", True),
            ("confluent-kafka", "confluent_produce", False),
        ),
    ),
    Contest(
        "produce Arrow tables",
        "tidelog_produce_arrow",
        (("confluent-kafka, lists of messages", "confluent_produce_batch", False),),
    ),
)
CONSUMING = (
    Contest(
        "consume records by poll",
        "tidelog_poll",
        (
            ("kafka-python", "kafka_python_poll", True),
            ("aiokafka", "aiokafka_getmany", True),
            ("confluent-kafka", "confluent_consume", False),
        ),
    ),
    Contest(
        "consume records one by one", "tidelog_iterate", (("confluent-kafka by lists", "confluent_consume", False),)
    ),
    Contest(
        "consume Arrow batches",
        "tidelog_arrow",
        (
            ("confluent-kafka, messages only", "confluent_consume", True),
            ("confluent-kafka, made into columns", "confluent_arrow", True),
        ),
    ),
)


class Result(NamedTuple):
    per_second: float
    per_cpu_second: float


def rows(amounts: Amounts, sizes: Sequence[int] = RECORD_BYTES) -> Iterator[Row]:
    with tidelog(work_dirs.on_disk(), NO_FSYNC) as broker:
        for record_bytes in sizes:
            share = 1 if record_bytes == RECORD_BYTES[0] else 2
            results = _results(
                broker, record_bytes, amounts.produced // share, amounts.consumed // share, amounts.trials
            )
            for contest in (*PRODUCING, *CONSUMING):
                ours = results[contest.ours]
                for library, way, goal in contest.others:
                    theirs = results[way]
                    yield Row(
                        f"{contest.name}, {record_bytes} B",
                        ours.per_second,
                        "records/s",
                        ratio_at_least(1.0) if goal else None,
                        theirs.per_second,
                        library,
                        f"per CPU second {ours.per_cpu_second:,.0f} and {theirs.per_cpu_second:,.0f}, "
                        f"{ours.per_cpu_second / theirs.per_cpu_second:.2f}",
                    )


def _results(broker: BrokerProcess, record_bytes: int, produced: int, consumed: int, trials: int) -> dict[str, Result]:
    """The best of each way, all of them taking turns."""
    done: dict[str, list[Result]] = {}
    producing, consuming = _ways(PRODUCING), _ways(CONSUMING)
    with ExitStack() as stack:
        filled = stack.enter_context(topics.topic(broker.port, f"bench-read-{record_bytes}"))
        librdkafka.produce(broker.bootstrap, filled, record_bytes, consumed)
        for _ in range(trials):
            for way in producing:
                with topics.topic(broker.port, f"bench-write-{record_bytes}", _PARTITIONS) as topic:
                    done.setdefault(way, []).append(_run(way, broker.bootstrap, topic, record_bytes, produced))
                    _check_arrived(way, broker.bootstrap, topic, produced + 1)
            for way in consuming:
                done.setdefault(way, []).append(_run(way, broker.bootstrap, filled, record_bytes, consumed))
    return {
        way: Result(max(r.per_second for r in results), max(r.per_cpu_second for r in results))
        for way, results in done.items()
    }


def _check_arrived(way: str, bootstrap: str, topic: str, wanted: int) -> None:
    """A rate of records that were dropped would be a fine one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        partitions = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
        found = sum(consumer.get_watermark_offsets(each, timeout=_PATIENCE_S)[1] for each in partitions)
    finally:
        consumer.close()
    if found != wanted:
        raise RuntimeError(f"{way} produced {wanted} records, but {found} are stored")


def _ways(contests: Sequence[Contest]) -> list[str]:
    named = [way for contest in contests for way in (contest.ours, *(way for _, way, _ in contest.others))]
    return list(dict.fromkeys(named))


def _run(way: str, bootstrap: str, topic: str, record_bytes: int, count: int) -> Result:
    command = [sys.executable, "-m", "bench.client_peers", way, bootstrap, topic, str(record_bytes), str(count)]
    print(f"measuring: {way}, {record_bytes} B", file=sys.stderr)
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=_PATIENCE_S, cwd=Path(__file__).parent.parent, check=False
    )
    if process.returncode:
        raise RuntimeError(f"{way} failed: {process.stderr[-2000:]}")
    facts = json.loads(process.stdout.splitlines()[-1])
    return Result(facts["records"] / facts["seconds"], facts["records"] / max(facts["cpu_s"], 1e-3))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.parser("bench.client", "Compare Python clients on one broker.")
    options = parser.parse_args(arguments)
    amounts = SHORT if options.short else FULL
    began = time.monotonic()
    found = list(rows(amounts))
    codec = "pure Python" if compiled.rows is None else "compiled"
    report.report(
        found, f"clients; {codec} codec; {time.monotonic() - began:.0f} s, best of {amounts.trials}", options.json
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
