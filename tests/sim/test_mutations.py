"""Would the simulator notice? The real code is broken on purpose, and some seed must say so."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.controller import election, transitions
from tidelog.replication import leading
from tidelog.replication.partition import Partition
from tidelog.testing.sim.faults import FaultPlan
from tidelog.testing.sim.simulation import Shape, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.controller.election import Elected
    from tidelog.controller.image import PartitionImage
    from tidelog.replication.role import Role

SEEDS = range(1, 60)
"""Enough to find each; most are found by the first few."""

HARSH = Shape(
    brokers=3,
    replicas=3,
    partitions=1,
    min_in_sync=1,
    fsync=False,
    faults=FaultPlan(
        weights={"kill": 3.0, "pause": 1.0, "cut off": 2.0, "storm": 1.0}, mean_gap_s=1.0, duration_s=30.0
    ),
)
"""Replicas fall behind and come back all the time."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def high_watermark_too_early(patch: pytest.MonkeyPatch) -> None:
    """The leader counts what it has alone as safe."""
    patch.setattr(leading, "safe_end", lambda own_end, _waited_for: own_end)


def truncation_by_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new follower cuts its log at its high watermark, which it learns late, instead of where epochs part."""
    become = Partition.become

    def broken(self: Partition, role: Role, now_ms: int) -> bool:
        taken = become(self, role, now_ms)
        if taken and self.follows and self.log.log_end_offset > self.high_watermark:
            self.log.truncate_to(self.high_watermark)
        return taken

    patch.setattr(Partition, "become", broken)


def no_truncation(patch: pytest.MonkeyPatch) -> None:
    """A leader finds every follower's log in order, whatever epochs it has."""
    patch.setattr(Partition, "divergence", lambda _self, _epoch, _offset: None)


def growth_without_catching_up(patch: pytest.MonkeyPatch) -> None:
    """Whoever fetches may join the in-sync replicas."""
    patch.setattr(leading, "may_join", lambda _follower, _high_watermark, _epoch_start: True)


def acknowledged_too_early(patch: pytest.MonkeyPatch) -> None:
    """Producers are told that records are safe as soon as the leader has them."""
    patch.setattr(Partition, "await_safe", lambda *_arguments, **_keywords: False)


def unclean_election(patch: pytest.MonkeyPatch) -> None:
    """Any live replica may lead, though the topic does not allow it."""
    elect = election.elect

    def broken(partition: PartitionImage, live: Any, **keywords: Any) -> Elected | None:
        return elect(partition, live, **{**keywords, "unclean": True})

    patch.setattr(transitions, "elect", broken)


def epoch_not_bumped(patch: pytest.MonkeyPatch) -> None:
    """Another leader goes on in the epoch of the one before."""
    led = election.led

    def broken(partition: PartitionImage, elected: Elected | None) -> PartitionImage:
        return replace(led(partition, elected), leader_epoch=partition.leader_epoch)

    patch.setattr(transitions, "led", broken)


@pytest.mark.parametrize(
    "break_it",
    [
        high_watermark_too_early,
        truncation_by_high_watermark,
        no_truncation,
        growth_without_catching_up,
        acknowledged_too_early,
        unclean_election,
        epoch_not_bumped,
    ],
)
def test_a_mutation_is_noticed(break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    for seed in SEEDS:
        report = Simulation(seed, shape=HARSH).run()
        if report.violation:
            return
    pytest.fail(f"no seed of {SEEDS} has noticed: {break_it.__doc__}")


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_without_a_mutation_there_is_nothing_to_notice(seed: int) -> None:
    assert Simulation(seed, shape=HARSH).run().violation is None
