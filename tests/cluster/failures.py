"""Failures of a cluster under load, and what has to be true after each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster_load import ConfluentThread, Load

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest
    from cluster_load import LoadThread

    from tidelog.testing.cluster import ClusterProcesses

TOPIC = "ledger"
PARTITIONS = 4


def a_leader_is_killed(cluster: ClusterProcesses, load: Load, number: int) -> None:
    victim = cluster.leader(TOPIC, number % PARTITIONS)
    cluster.kill(victim)
    cluster.wait_until_led(TOPIC)
    load.wait_for_acks()
    cluster.restart(victim)


def a_leader_is_killed_and_back_at_once(cluster: ClusterProcesses, load: Load, number: int) -> None:
    """Before anybody can have noticed that it was away."""
    victim = cluster.leader(TOPIC, number % PARTITIONS)
    cluster.kill(victim)
    cluster.restart(victim)
    load.wait_for_acks()


def the_controller_is_killed(cluster: ClusterProcesses, load: Load, _number: int) -> None:
    victim = cluster.wait_for_controller()
    cluster.kill(victim)
    cluster.wait_for_controller(other_than=victim)
    cluster.wait_until_led(TOPIC)
    load.wait_for_acks()
    cluster.restart(victim)


def all_are_restarted_in_turn(cluster: ClusterProcesses, load: Load, _number: int) -> None:
    for broker in cluster.numbers:
        cluster.restart(broker)
        cluster.wait_until_in_sync(TOPIC)
        load.wait_for_acks(100)


def a_leader_hangs_past_its_session(cluster: ClusterProcesses, load: Load, number: int) -> None:
    victim = cluster.leader(TOPIC, number % PARTITIONS)
    cluster.pause(victim)
    cluster.wait_until_led(TOPIC)
    load.wait_for_acks()
    cluster.resume(victim)


def a_broker_loses_its_disk(cluster: ClusterProcesses, load: Load, number: int) -> None:
    victim = cluster.leader(TOPIC, number % PARTITIONS)
    cluster.kill(victim)
    cluster.wipe(victim)
    if number % 2:
        cluster.wait_until_led(TOPIC)
    cluster.restart(victim)
    load.wait_for_acks()


FAILURES = [
    a_leader_is_killed,
    a_leader_is_killed_and_back_at_once,
    the_controller_is_killed,
    all_are_restarted_in_turn,
    a_leader_hangs_past_its_session,
    a_broker_loses_its_disk,
]

LEAST_ROUNDS: dict[Callable[[ClusterProcesses, Load, int], None], int] = {a_broker_loses_its_disk: 2}
"""Those that come in several forms, one after the other."""


def survive(
    cluster: ClusterProcesses,
    failure: Callable[[ClusterProcesses, Load, int], None],
    rounds: int,
    capsys: pytest.CaptureFixture[str],
    *,
    producers: Sequence[Callable[[int, str, str, int], LoadThread]] = (ConfluentThread, ConfluentThread),
    wait: bool = True,
) -> None:
    """Lets the failure happen so many times; with `wait`, each time the cluster is whole again."""
    rounds = max(rounds, LEAST_ROUNDS.get(failure, 1))
    clock = SystemClock()
    cluster.create_topic(TOPIC, PARTITIONS)
    took_s = []
    with Load(cluster, TOPIC, PARTITIONS, producers) as load:
        for number in range(rounds):
            load.wait_for_acks()
            started_s = clock.monotonic()
            failure(cluster, load, number)
            if wait:
                cluster.wait_until_whole()
                cluster.wait_until_in_sync(TOPIC)
            took_s.append(clock.monotonic() - started_s)
        load.wait_for_acks()
    cluster.wait_until_whole()
    acknowledged = load.judge()
    if rounds > 2:
        with capsys.disabled():
            print(  # noqa: T201 -- the figures are the point of the long run
                f"\n{failure.__name__}, {rounds} times: {acknowledged:,} records acknowledged, all stored once, in "
                f"order, and alike on all replicas; whole again within {max(took_s):.1f} s "
                f"(median {sorted(took_s)[len(took_s) // 2]:.1f} s)"
            )
