"""`python -m bench.failover`: how long clients wait for partitions when brokers die, stop, or lose their controller.

Three brokers as real processes with a real ZooKeeper, three replicas of everything. What counts for the controller
begins when ZooKeeper gives the session of a dead broker up; what counts for a client begins with the death.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from bench import report
from bench.cluster_stage import Stage, stage
from bench.eager_writes import EagerWrites
from bench.failover_load import SteadyLoad, Writable
from bench.leader_views import ControllerWait, LeaderViews
from bench.process_facts import cpu_seconds
from bench.results import Row, below, measured_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOPIC = "bench-failover"
_EXPIRED_WITHIN_S = 120.0


class Amounts(NamedTuple):
    partitions: int
    controller_partitions: int
    """For how many partitions a new controller has to be ready."""
    session_ms: int
    other_sessions_ms: tuple[int, ...]
    """Session timeouts whose cost is shown too."""
    rounds: int
    load_per_second: float


FULL = Amounts(3_000, 10_000, session_ms=6_000, other_sessions_ms=(2_000, 18_000), rounds=3, load_per_second=500)
SHORT = Amounts(300, 600, session_ms=2_000, other_sessions_ms=(), rounds=1, load_per_second=300)


class Killed(NamedTuple):
    """What followed an unclean kill, in seconds."""

    led: int
    expired_s: float
    """From the kill to the end of the session."""
    chosen_s: float
    """From there until the last new leader is written down."""
    known_s: float
    """From there until the surviving brokers tell clients of all new leaders."""
    writable_s: list[float]
    """From the kill, for each partition, until a client's record was acknowledged."""
    eagerly_writable_s: list[float]
    """The same for a client that asks again and again from the end of the session on."""
    failed: int
    cpu_s: float
    """Processor time of the surviving brokers from the end of the session until then."""


class Stopped(NamedTuple):
    """What followed a SIGTERM, in seconds."""

    led: int
    chosen_s: float
    known_s: float
    ended_s: float
    sent: int
    failed: int
    missing: int
    usual_s: float
    slowest_s: float


class Succeeded(NamedTuple):
    """What followed the death of a controller, in seconds from the end of its session."""

    led: int
    ready_s: float
    known_s: float
    cpu_s: float


def kill(on: Stage, amounts: Amounts, victim: int) -> Killed:
    cluster = on.cluster
    led = cluster.view().led_by(victim, _TOPIC)
    survivors = [number for number in cluster.numbers if number != victim]
    client = Writable(cluster.bootstrap, _TOPIC)
    client.warm(led)
    eager = EagerWrites([cluster.addresses[number] for number in survivors], _TOPIC, led)
    gone = on.registry.vanishing(f"/brokers/ids/{victim}")
    with _following(on, survivors) as views:
        killed_at = time.time()
        cluster.kill(victim)
        client.send(led)
        finishing = threading.Thread(target=client.finish)
        finishing.start()
        expired_at = gone.wait(_EXPIRED_WITHIN_S)
        spent = _cpu_of(on, survivors)
        views.begin()
        eager.begin()
        eager.end()
        finishing.join()
        spent = _cpu_of(on, survivors) - spent
    states = on.registry.states(_TOPIC, amounts.partitions)
    return Killed(
        len(led),
        expired_at - killed_at,
        max(states[number].at_s for number in led) - expired_at,
        views.all_led_at(survivors) - expired_at,
        sorted(at - killed_at for at in client.acknowledged_s),
        sorted(at - killed_at for at in eager.acknowledged_s),
        client.failed + len(led) - len(eager.acknowledged_s),
        spent,
    )


def stop(on: Stage, amounts: Amounts, victim: int) -> Stopped:
    cluster = on.cluster
    led = cluster.view().led_by(victim, _TOPIC)
    survivors = [number for number in cluster.numbers if number != victim]
    read = max(1, amounts.partitions // 10)
    with SteadyLoad(cluster.bootstrap, _TOPIC, amounts.partitions, amounts.load_per_second, read) as load:
        with _following(on, survivors) as views:
            views.begin()
            stopped_at = time.time()
            cluster.stop(victim)
            ended_at = time.time()
        states = on.registry.states(_TOPIC, amounts.partitions)
    return Stopped(
        len(led),
        max(states[number].at_s for number in led) - stopped_at,
        views.all_led_at(survivors) - stopped_at,
        ended_at - stopped_at,
        load.sent,
        load.failed,
        load.missing,
        load.usual_s(stopped_at),
        load.slowest_s(stopped_at),
    )


def kill_controller(on: Stage, topics: Sequence[str]) -> Succeeded:
    cluster = on.cluster
    victim = cluster.wait_for_controller()
    led = sum(len(cluster.view().led_by(victim, topic)) for topic in topics)
    survivors = [number for number in cluster.numbers if number != victim]
    waiting = ControllerWait([cluster.addresses[number] for number in survivors])
    gone = on.registry.vanishing("/controller")
    with _following(on, survivors) as views:
        cluster.kill(victim)
        gone_at = gone.wait(_EXPIRED_WITHIN_S)
        spent = _cpu_of(on, survivors)
        views.begin()
        ready_at = waiting.answered_at(_EXPIRED_WITHIN_S)
        cluster.wait_until_led(topics[-1])
        spent = _cpu_of(on, survivors) - spent
    waiting.close()
    return Succeeded(led, ready_at - gone_at, views.all_led_at(survivors) - gone_at, spent)


@contextmanager
def _following(on: Stage, brokers: Sequence[int]) -> Iterator[LeaderViews]:
    views = LeaderViews([on.cluster.addresses[number] for number in brokers])
    try:
        yield views
    finally:
        views.end()


def _cpu_of(on: Stage, brokers: Sequence[int]) -> float:
    return sum(cpu_seconds(on.cluster.broker(number).pid) for number in brokers)


def rows(amounts: Amounts) -> Iterator[Row]:
    _say("three brokers and their partitions")
    with stage({"zookeeper.session.timeout.ms": str(amounts.session_ms)}) as on:
        on.create(_TOPIC, amounts.partitions)
        yield from _kill_rows(amounts, [_kill_and_mend(on, amounts) for _ in range(amounts.rounds)])
        stops = []
        for _ in range(amounts.rounds):
            _say("a clean stop")
            victim = _other_than_controller(on)
            stops.append(stop(on, amounts, victim))
            on.bring_back(victim, _TOPIC)
        yield from _stop_rows(amounts, stops)
        for session_ms in amounts.other_sessions_ms:
            on.set_session_timeout(session_ms)
            on.prefer_first_replicas()
            yield _session_row(session_ms, _kill_and_mend(on, amounts))
    yield from _controller_rows(amounts)


def _kill_and_mend(on: Stage, amounts: Amounts) -> Killed:
    _say("an unclean kill")
    victim = _other_than_controller(on)
    killed = kill(on, amounts, victim)
    on.bring_back(victim, _TOPIC)
    return killed


def _other_than_controller(on: Stage) -> int:
    controller = on.cluster.wait_for_controller()
    return next(number for number in on.cluster.numbers if number != controller)


def _kill_rows(amounts: Amounts, rounds: Sequence[Killed]) -> Iterator[Row]:
    name = f"kill -9 of a broker that leads {rounds[0].led:,} of {amounts.partitions:,}"
    known = [each.known_s for each in rounds]
    yield Row(
        f"{name}: all have leaders, after the session",
        statistics.median(known),
        "s",
        below(0.5),
        note=f"as surviving brokers tell clients, {_each(known)}; written down after "
        f"{_each([each.chosen_s for each in rounds])}",
    )
    yield _writable_row(name, "librdkafka", [(each.expired_s, each.writable_s) for each in rounds])
    yield _writable_row(name, "whoever asks at once", [(each.expired_s, each.eagerly_writable_s) for each in rounds])
    yield Row(
        f"{name}: records that failed",
        sum(each.failed for each in rounds),
        "",
        below(1),
        note=f"surviving brokers' processor time after the session {_each([each.cpu_s for each in rounds])}",
    )
    yield Row(
        f"session timeout of {amounts.session_ms / 1000:g} s: kill to its end",
        statistics.median(each.expired_s for each in rounds),
        "s",
        note=_each([each.expired_s for each in rounds]),
    )


def _writable_row(name: str, client: str, rounds: Sequence[tuple[float, list[float]]]) -> Row:
    last = [writable_s[-1] for _expired_s, writable_s in rounds]
    together = sorted(at for _expired_s, writable_s in rounds for at in writable_s)
    behind = sorted(at - expired_s for expired_s, writable_s in rounds for at in writable_s)
    return Row(
        f"{name}: last one writable by {client}, after the kill",
        statistics.median(last),
        "s",
        note=f"acks=all, {_each(last)}; of {len(together):,} {_spread(together)}; after the session {_spread(behind)}",
    )


def _session_row(session_ms: int, killed: Killed) -> Row:
    return Row(
        f"session timeout of {session_ms / 1000:g} s: kill to its end",
        killed.expired_s,
        "s",
        note=f"last partition writable {killed.writable_s[-1]:.2f} s after the kill, "
        f"{killed.eagerly_writable_s[-1]:.2f} s by whoever asks at once",
    )


def _stop_rows(amounts: Amounts, rounds: Sequence[Stopped]) -> Iterator[Row]:
    name = f"SIGTERM to a broker that leads {rounds[0].led:,} of {amounts.partitions:,}"
    known = [each.known_s for each in rounds]
    yield Row(
        f"{name}: all have other leaders",
        statistics.median(known),
        "s",
        below(1),
        note=f"as other brokers tell clients, {_each(known)}; written down after "
        f"{_each([each.chosen_s for each in rounds])}; process ended after {_each([each.ended_s for each in rounds])}",
    )
    yield Row(
        f"{name}: records that failed or got lost",
        sum(each.failed + each.missing for each in rounds),
        "",
        below(1),
        note=f"of {sum(each.sent for each in rounds):,}; longest wait for an acknowledgement "
        f"{_each([each.slowest_s for each in rounds])}, usually "
        f"{1000 * statistics.median(each.usual_s for each in rounds):.0f} ms",
    )


def _controller_rows(amounts: Amounts) -> Iterator[Row]:
    topics = [f"{_TOPIC}-{number}" for number in range(4)]
    with stage({"zookeeper.session.timeout.ms": str(amounts.session_ms)}) as on:
        for topic in topics:
            on.create(topic, amounts.controller_partitions // len(topics))
        rounds = []
        for _ in range(amounts.rounds):
            _say("a new controller")
            victim = on.cluster.wait_for_controller()
            rounds.append(kill_controller(on, topics))
            on.bring_back(victim, *topics)
    name = f"new controller, {amounts.controller_partitions:,} partitions"
    ready = [each.ready_s for each in rounds]
    yield Row(
        f"{name}: ready",
        statistics.median(ready),
        "s",
        below(2),
        note=f"from the end of the old one's session to the first answer, {_each(ready)}",
    )
    known = [each.known_s for each in rounds]
    yield Row(
        f"{name}: all have leaders",
        statistics.median(known),
        "s",
        note=f"{rounds[0].led:,} were led by the old controller; {_each(known)}; "
        f"brokers' processor time {_each([each.cpu_s for each in rounds])}",
    )


def _each(seconds: Sequence[float]) -> str:
    return " ".join(f"{each:.2f}" for each in seconds) + " s"


def _spread(ordered: Sequence[float]) -> str:
    parts = ((0.0, "first"), (0.1, "10 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (1.0, "last"))
    return ", ".join(f"{label} {ordered[round((len(ordered) - 1) * share)]:.2f}" for share, label in parts) + " s"


def _say(what: str) -> None:
    print(f"measuring: {what}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = report.parser(
        "bench.failover",
        "Measure failures of brokers.",
        short="a quick look: a tenth of the partitions, one round each",
    )
    parser.add_argument("--session-timeout-ms", type=int, help="after how long ZooKeeper gives a silent broker up")
    options = parser.parse_args(arguments)
    amounts = SHORT if options.short else FULL
    if options.session_timeout_ms is not None:
        amounts = amounts._replace(session_ms=options.session_timeout_ms)
    began = time.monotonic()
    measured = []
    for row in rows(amounts):
        print(f"{row.name}: {measured_text(row.measured, row.unit)}; {row.note}", file=sys.stderr)
        measured.append(row)
    report.report(measured, f"failover; {time.monotonic() - began:.0f} s, median of {amounts.rounds}", options.json)
    return report.exit_code(measured)


if __name__ == "__main__":
    sys.exit(main())
