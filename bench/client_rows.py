"""Rows by a real client, librdkafka: producing and consuming small records, against Apache Kafka if asked."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from bench import librdkafka, topics, work_dirs
from bench.peers import NO_FSYNC, tidelog
from bench.process_facts import spent_by
from bench.results import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.plan import Plan

RECORD_BYTES = (100, 1024)
_PEERS = Path(__file__).parent.parent / "tests" / "peers"


class Peer(Protocol):
    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...


class KafkaNode(Peer, Protocol):
    """What the peer tests start: it needs Java and Maven."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class Streamed(NamedTuple):
    """One way through the broker and back, in MB/s, and the broker's share of a processor meanwhile."""

    produced: float
    produce_share: float
    consumed: float
    consume_share: float


def clients(plan: Plan) -> Iterator[Row]:
    for label, settings in (("no fsync", NO_FSYNC), ("group commit", {})):
        with tidelog(work_dirs.on_disk(), settings) as broker:
            for record_bytes in RECORD_BYTES:
                best = _best(plan, broker, record_bytes)
                yield _row(
                    f"librdkafka produces {record_bytes} B, {label}", best.produced, record_bytes, best.produce_share
                )
                if settings:
                    yield _row(f"librdkafka consumes {record_bytes} B", best.consumed, record_bytes, best.consume_share)


def against_kafka(plan: Plan) -> Iterator[Row]:
    """The same with Apache Kafka beside it. Neither syncs: Kafka leaves that to the kernel by default."""
    place = work_dirs.on_disk()
    with ExitStack() as stack:
        path = stack.enter_context(work_dirs.work_dir(place))
        try:
            kafka = stack.enter_context(kafka_node(path / "kafka"))
        except (ImportError, OSError, RuntimeError) as error:
            print(f"no comparison with Apache Kafka: {error}", file=sys.stderr)
            return
        broker = stack.enter_context(tidelog(place, NO_FSYNC))
        for record_bytes in RECORD_BYTES:
            ours, theirs = _best(plan, broker, record_bytes), _best(plan, kafka, record_bytes)
            for what, mine, other, share in (
                ("produces", ours.produced, theirs.produced, theirs.produce_share),
                ("consumes", ours.consumed, theirs.consumed, theirs.consume_share),
            ):
                note = f"Kafka {share:.0%} CPU"
                yield Row(f"librdkafka {what} {record_bytes} B", mine, "MB/s", None, other, "Kafka", note)


def kafka_node(data_dir: Path) -> KafkaNode:
    sys.path.insert(0, str(_PEERS))
    node: KafkaNode = importlib.import_module("apache_kafka").KafkaProcess(data_dir, {})
    return node


def _best(plan: Plan, peer: Peer, record_bytes: int) -> Streamed:
    trials = [_stream(peer, record_bytes, plan.client_bytes // record_bytes) for _ in range(max(1, plan.trials // 2))]
    produce = max(trials, key=lambda trial: trial.produced)
    consume = max(trials, key=lambda trial: trial.consumed)
    return Streamed(produce.produced, produce.produce_share, consume.consumed, consume.consume_share)


def _stream(peer: Peer, record_bytes: int, count: int) -> Streamed:
    port = int(peer.bootstrap.rpartition(":")[2])
    with topics.topic(port, f"bench-{record_bytes}") as topic:
        with spent_by(peer.pid) as producing:
            produced = librdkafka.produce(peer.bootstrap, topic, record_bytes, count)
        with spent_by(peer.pid) as consuming:
            consumed = librdkafka.consume(peer.bootstrap, topic, record_bytes, count)
    return Streamed(produced.megabytes_per_second, producing.share, consumed.megabytes_per_second, consuming.share)


def _row(name: str, megabytes: float, record_bytes: int, share: float) -> Row:
    note = f"{megabytes * 1e6 / record_bytes:,.0f} records/s, broker {share:.0%} CPU; the client is the bound"
    return Row(name, megabytes, "MB/s", note=note)
