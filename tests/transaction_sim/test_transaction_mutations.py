"""Would the simulation of transactions notice? The real code is broken on purpose, and some seed must say so."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.broker.markers import Markers
from tidelog.coordinators.runtime import ShardRuntime
from tidelog.coordinators.transactions import ending, initialising, shard
from tidelog.coordinators.transactions.shard import SendMarkers
from tidelog.coordinators.transactions.states import TransactionState
from tidelog.coordinators.transactions.transaction import Transaction
from tidelog.records.header import MAX_SEQUENCE
from tidelog.storage import producers
from tidelog.storage.producers import Producers
from tidelog.storage.transactions import Transactions
from tidelog.storage.verification import Guards
from tidelog.testing.transaction_sim.network import Weather
from tidelog.testing.transaction_sim.producer import Habits
from tidelog.testing.transaction_sim.shape import DEFAULT_WEIGHTS, Shape
from tidelog.testing.transaction_sim.simulation import TransactionSimulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.records.control import Marker
    from tidelog.storage.transactions import CompletedTransaction

SEEDS = range(1, 200)
"""Enough to find each; most are found by the first few."""

HARSH = Shape(
    habits=(
        Habits("plain", 0, timeout_ms=1000),
        Habits("bumping", 2, timeout_ms=1000),
        Habits("two-phase", 2, two_phase=True, timeout_ms=1000),
    ),
    weather=Weather(lost=0.05, repeated=0.3, late=0.15, late_s_max=3.0),
    weights=DEFAULT_WEIGHTS,
    mean_gap_s=0.3,
    duration_s=8.0,
    partitions=2,
)
"""Coordinators and leaders change all the time, and half of what arrives is old."""

MOVING = replace(
    HARSH,
    weather=Weather(lost=0.02, repeated=0.3, late=0.1, late_s_max=1.0),
    weights={"coordinator moves": 1.0, "leader moves": 3.0, "second life": 1.0},
    mean_gap_s=0.2,
)
"""Whoever leads is soon replaced, and the next one may not know all that the last one knew."""

DEPOSED = replace(
    HARSH,
    habits=tuple(Habits(f"plain-{number}", 0, timeout_ms=8000) for number in range(3)),
    weather=Weather(lost=0.1, late=0.1, late_s_max=1.0),
    weights={"coordinator moves": 1.0},
    mean_gap_s=1.0,
    duration_s=15.0,
    partitions=1,
)
"""A producer whose epoch stays the same, and coordinators that do not notice that they are none any more."""

SLOW = replace(
    HARSH,
    habits=tuple(Habits(f"plain-{number}", 0, timeout_ms=8000) for number in range(3)),
    weather=Weather(lost=0.2, late=0.8, late_s_max=1.2),
    weights={"leader moves": 1.0},
    mean_gap_s=1.0,
    duration_s=20.0,
    partitions=3,
)
"""Producers whose epoch stays the same, and batches that are overtaken by the end of their transaction."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def markers_before_the_outcome_is_safe(patch: pytest.MonkeyPatch) -> None:
    """Leaders write down an outcome that the next coordinator may never have heard of."""
    when_safe = ShardRuntime._when_safe

    def broken(self: ShardRuntime[Any], release: Any) -> None:
        if release.args and isinstance(release.args[0], SendMarkers):
            release()
        else:
            when_safe(self, release)

    patch.setattr(ShardRuntime, "_when_safe", broken)


def told_before_the_outcome_is_safe(patch: pytest.MonkeyPatch) -> None:
    """Producers are told what the next coordinator may never have heard of."""
    patch.setattr(ShardRuntime, "_when_safe", lambda _self, release: release())


def complete_before_all_markers(patch: pytest.MonkeyPatch) -> None:
    """A transaction counts as over as soon as its markers are sent."""
    write = Markers.write

    def broken(self: Markers, effect: SendMarkers) -> None:
        write(self, effect)
        self._on_written(effect)

    patch.setattr(Markers, "write", broken)


def no_new_epoch_on_timeout(patch: pytest.MonkeyPatch) -> None:
    """A producer whose transaction timed out is not fenced."""

    def broken(known: Transaction, _new_id: Any, now_ms: int) -> Transaction:
        return replace(known, state=TransactionState.PREPARE_ABORT, updated_ms=now_ms)

    patch.setattr(shard, "fenced", broken)


def no_new_epoch_for_a_new_holder(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a transactional id over goes by the epoch of the one before."""
    renewed = initialising._renewed

    def broken(known: Transaction, *arguments: Any) -> Any:
        changed = renewed(known, *arguments)
        return replace(changed, identity=known.identity) if isinstance(changed, Transaction) else changed

    patch.setattr(initialising, "_renewed", broken)


def no_verification(patch: pytest.MonkeyPatch) -> None:
    """Partitions take the first batch of a transaction without asking its coordinator (as before KIP-890)."""
    patch.setattr(Producers, "verification", lambda *_arguments: None)
    patch.setattr(Guards, "stands", lambda *_arguments: True)


def verification_that_outlives_markers(patch: pytest.MonkeyPatch) -> None:
    """What a coordinator vouched for stays allowed though the transaction has ended meanwhile."""

    def broken(self: Guards, producer_id: int) -> None:
        if producer_id in self._by_producer:
            self._by_producer[producer_id].lowest_sequence = MAX_SEQUENCE

    patch.setattr(Guards, "void", broken)


def markers_of_old_coordinators(patch: pytest.MonkeyPatch) -> None:
    """Partitions take markers of coordinators that were deposed."""
    check = Producers.check_marker

    def broken(self: Producers, marker: Marker, producer_id: int, *arguments: int) -> None:
        check(self, marker._replace(coordinator_epoch=2**30), producer_id, *arguments)

    patch.setattr(Producers, "check_marker", broken)


def markers_that_come_again(patch: pytest.MonkeyPatch) -> None:
    """A marker that comes a second time ends the transaction after the one it was meant for."""
    patch.setattr(producers, "EPOCH_PER_TRANSACTION", 99)


def no_new_epoch_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Producers keep their epoch from one transaction to the next, though they believe otherwise."""
    patch.setattr(ending, "BUMPS_EPOCHS", 99)


def outcome_changed_by_the_next_holder(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a transactional id over aborts what was about to be committed."""
    initialise = initialising.initialise

    def broken(known: Transaction | None, *arguments: Any) -> Any:
        if known is not None and known.state is TransactionState.PREPARE_COMMIT:
            known = replace(known, state=TransactionState.ONGOING)
        return initialise(known, *arguments)

    patch.setattr(shard, "initialise", broken)


def outcome_changed_by_the_next_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A coordinator aborts whatever it finds unfinished when it has loaded its state."""
    on_loaded = shard.TransactionShard.on_loaded

    def broken(self: shard.TransactionShard, now_ms: int) -> Any:
        for known in list(self):
            if known.state is TransactionState.PREPARE_COMMIT:
                aborted = replace(known, state=TransactionState.PREPARE_ABORT)
                self.apply(aborted.key(), aborted.value())
        return on_loaded(self, now_ms)

    patch.setattr(shard.TransactionShard, "on_loaded", broken)


def prepared_transactions_that_time_out(patch: pytest.MonkeyPatch) -> None:
    """What takes part in a two-phase commit is aborted though somebody else decides."""

    def broken(self: Transaction) -> int | None:
        return None if self.state is not TransactionState.ONGOING else self.started_ms + min(self.timeout_ms, 1000)

    patch.setattr(Transaction, "times_out_at_ms", property(broken))


def ended_before_the_marker_is_safe(patch: pytest.MonkeyPatch) -> None:
    """Records of a transaction are shown as soon as the leader has its marker."""
    end = Transactions.end

    def broken(self: Transactions, completed: CompletedTransaction) -> None:
        end(self, completed)
        self.settle(2**62)

    patch.setattr(Transactions, "end", broken)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], Shape] = {
    markers_before_the_outcome_is_safe: MOVING,
    told_before_the_outcome_is_safe: HARSH,
    complete_before_all_markers: HARSH,
    no_new_epoch_on_timeout: HARSH,
    no_new_epoch_for_a_new_holder: HARSH,
    no_verification: HARSH,
    verification_that_outlives_markers: SLOW,
    markers_of_old_coordinators: DEPOSED,
    markers_that_come_again: MOVING,
    no_new_epoch_at_the_end: HARSH,
    outcome_changed_by_the_next_holder: MOVING,
    outcome_changed_by_the_next_coordinator: HARSH,
    prepared_transactions_that_time_out: HARSH,
    ended_before_the_marker_is_safe: MOVING,
}


@pytest.mark.parametrize("break_it", MUTATIONS)
def test_a_mutation_is_noticed(break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    for seed in SEEDS:
        report = TransactionSimulation(seed, shape=MUTATIONS[break_it]).run()
        if report.violation:
            return
    pytest.fail(f"no seed of {SEEDS} has noticed: {break_it.__doc__}")


@pytest.mark.parametrize("shape", [HARSH, MOVING, DEPOSED, SLOW], ids=["harsh", "moving", "deposed", "slow"])
def test_without_a_mutation_there_is_nothing_to_notice(shape: Shape) -> None:
    for seed in SEEDS[:4]:
        report = TransactionSimulation(seed, shape=shape).run()
        assert report.violation is None, report


def test_the_holes_that_the_new_dialect_closes_are_there() -> None:
    """Before transaction.version 2, an old message that comes late enough ends the wrong transaction."""
    shape = replace(HARSH, habits=(Habits("plain", 0, strays=True),))
    assert any(TransactionSimulation(seed, shape=shape).run().violation for seed in SEEDS)
