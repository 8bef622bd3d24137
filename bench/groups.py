"""`python -m bench.groups`: very many group members on one broker, and what a rebalance of a large group takes.

10,000 groups of one member and 100 groups of 100 members report at the interval that clients use by default, for
longer than a session lasts. A member that the broker throws out although it reported in time is a missed session.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import uvloop

from bench import report, topics, work_dirs
from bench.group_load import Shape, form, keep_alive, members_of
from bench.group_rebalance import rebalance
from bench.group_wire import Wire
from bench.process_facts import resident_bytes, spent_by
from bench.results import Row, below
from tidelog.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.group_load import Beats
    from bench.group_rebalance import Rebalance
    from bench.process_facts import Spent

_MB = 1e6
_TOPIC = "bench-groups"
_PEERS = Path(__file__).parent.parent / "tests" / "peers"
_SETTINGS = {
    # Enough for all members of a group to come into its first generation together.
    "group.initial.rebalance.delay.ms": "300",
    "auto.create.topics.enable": "false",
}
PROTOCOLS = ("classic", "consumer")


class Amounts(NamedTuple):
    shapes: tuple[tuple[int, int], ...]
    """Groups, and members in each."""
    seconds: float
    """How long they are kept alive; a session lasts 45 s."""
    rebalance_members: int
    trials: int


FULL = Amounts(shapes=((10_000, 1), (100, 100)), seconds=60.0, rebalance_members=100, trials=5)
SHORT = Amounts(shapes=((500, 1), (5, 100)), seconds=7.0, rebalance_members=100, trials=2)


class Broker(Protocol):
    @property
    def port(self) -> int: ...

    @property
    def pid(self) -> int: ...


class KafkaNode(Protocol):
    """What the peer tests start: it needs Java and Maven."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str], *, heap: str) -> None: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class _Kafka(NamedTuple):
    port: int
    pid: int


class Kept(NamedTuple):
    """One shape, kept alive."""

    formed_s: float
    beats: Beats
    spent: Spent
    before_bytes: int
    after_bytes: int


def rows(amounts: Amounts, protocols: Sequence[str] = PROTOCOLS, *, on_kafka: bool = False) -> Iterator[Row]:
    for protocol in protocols:
        for groups, members in amounts.shapes:
            shape = Shape(protocol, groups, members)
            with _broker(on_kafka=on_kafka) as broker:
                print(f"measuring: {shape}", file=sys.stderr)
                yield from _kept_rows(shape, uvloop.run(_keep(broker, shape, amounts.seconds)))
        with _broker(on_kafka=on_kafka) as broker:
            print(f"measuring: a rebalance, {protocol}", file=sys.stderr)
            yield from _rebalance_rows(protocol, amounts, uvloop.run(_rebalance(broker, protocol, amounts)))


async def _keep(broker: Broker, shape: Shape, seconds: float) -> Kept:
    partitions = shape.members
    await asyncio.to_thread(topics.create, broker.port, _TOPIC, partitions)
    async with await Wire.connect(broker.port) as wire:
        await wire.wake_coordinator()
        before = resident_bytes(broker.pid)
        groups = [members_of(wire, shape, number, _TOPIC, partitions) for number in range(shape.groups)]
        formed_s = await form(groups, partitions)
        everybody = [member for members in groups for member in members]
        with spent_by(broker.pid) as spent:
            beats = await keep_alive(everybody, seconds)
        return Kept(formed_s, beats, spent, before, resident_bytes(broker.pid))


async def _rebalance(broker: Broker, protocol: str, amounts: Amounts) -> Rebalance:
    partitions = 2 * amounts.rebalance_members
    await asyncio.to_thread(topics.create, broker.port, _TOPIC, partitions)
    async with await Wire.connect(broker.port) as wire:
        await wire.wake_coordinator()
        return await rebalance(wire, protocol, amounts.rebalance_members, _TOPIC, partitions, amounts.trials)


def _kept_rows(shape: Shape, kept: Kept) -> Iterator[Row]:
    beats, spent = kept.beats, kept.spent
    count = len(beats.latencies_s)
    members = shape.groups * shape.members
    yield Row(
        f"{shape}: missed sessions",
        beats.missed,
        "",
        below(1),
        note=f"{count:,} heartbeats in {spent.wall_s:.0f} s, {beats.odd} odd answers; formed in {kept.formed_s:.1f} s",
    )
    yield Row(
        f"{shape}: slowest heartbeat",
        beats.latency_ms(1.0),
        "ms",
        below(1000),
        note=f"median {beats.latency_ms(0.5):.2f} ms, 99th {beats.latency_ms(0.99):.1f} ms; "
        f"the generator was {beats.late_s * 1000:.0f} ms late at most",
    )
    yield Row(
        f"{shape}: processor",
        spent.share * 100,
        "%",
        below(80),
        note=f"of one core at {count / spent.wall_s:,.0f} heartbeats/s, {spent.cpu_s / count * 1e6:.0f} us each",
    )
    grown = (kept.after_bytes - kept.before_bytes) / members
    yield Row(
        f"{shape}: memory",
        kept.after_bytes / _MB,
        "MB",
        below(400),
        note=f"resident, {kept.before_bytes / _MB:.0f} MB before the groups: {grown / 1000:.1f} kB per member",
    )


def _rebalance_rows(protocol: str, amounts: Amounts, took: Rebalance) -> Iterator[Row]:
    name = f"rebalance of {amounts.rebalance_members} members, {protocol}"
    yield Row(
        f"{name}: all ask at once",
        took.at_once_s * 1000,
        "ms",
        below(1000),
        note=f"from the first request until all have their share, best of {amounts.trials}",
    )
    yield Row(f"{name}: by heartbeats", took.at_interval_s, "s", note="as members learn of it at the default interval")


@contextmanager
def _broker(*, on_kafka: bool) -> Iterator[Broker]:
    with work_dirs.work_dir(work_dirs.on_disk()) as path:
        if not on_kafka:
            with BrokerProcess(path / "data", _SETTINGS) as broker:
                yield broker
            return
        sys.path.append(str(_PEERS))
        kafka_node: type[KafkaNode] = importlib.import_module("apache_kafka").KafkaProcess
        with kafka_node(path / "kafka", _SETTINGS, heap="1g") as node:
            yield _Kafka(int(node.bootstrap.rpartition(":")[2]), node.pid)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.parser(
        "bench.groups", "Measure consumer groups.", short="a quick look: few groups, for some seconds"
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    parser.add_argument("--seconds", type=float, help="how long groups are kept alive")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka instead (needs Java and Maven)")
    options = parser.parse_args(arguments)
    amounts = SHORT if options.short else FULL
    if options.seconds is not None:
        amounts = amounts._replace(seconds=options.seconds)
    began = time.monotonic()
    measured = list(rows(amounts, options.protocol or PROTOCOLS, on_kafka=options.kafka))
    broker = "Apache Kafka" if options.kafka else "Tidelog"
    report.report(measured, f"groups on one {broker} broker; {time.monotonic() - began:.0f} s", options.json)
    return report.exit_code(measured)


if __name__ == "__main__":
    sys.exit(main())
