"""One run: producers write transactions, things go wrong, all heals, and accounts are settled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.states import TransactionState
from tidelog.testing.sim.chance import Chance
from tidelog.testing.sim.timeline import SimulationStuck
from tidelog.testing.transaction_sim.cluster import SimCluster
from tidelog.testing.transaction_sim.faults import Faults
from tidelog.testing.transaction_sim.ledger import Violation
from tidelog.testing.transaction_sim.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.testing.sim.timeline import SimLoop

_SETTLING_S = 60.0
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    fingerprint: str
    violation: str | None
    steps: int
    messages: int
    simulated_s: float
    committed: int
    aborted: int
    unknown: int
    """Transactions of which their producer was not told how they ended."""
    faults: Mapping[str, int]
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        outcome = self.violation or "kept all promises"
        return (
            f"seed {self.seed}: {outcome} ({self.simulated_s:.0f} s, {self.steps} steps, {self.messages} messages, "
            f"{self.committed} committed, {self.aborted} aborted, {self.unknown} unknown, "
            f"{sum(self.faults.values())} faults, {self.fingerprint[:8]})"
        )


class TransactionSimulation:
    def __init__(self, seed: int, *, shape: Shape | None = None, echo: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.shape = shape or Shape.choose(Chance(seed).stream("shape"))
        self.cluster = SimCluster(seed, self.shape, echo)
        self._loop = self.cluster.loop("the run")
        self._faults = Faults(self.cluster, self._loop, self.shape, self.cluster.chance.stream("faults"))

    def run(self) -> Report:
        """A violation is in the report; what is wrong with the simulation itself is raised."""
        cluster = self.cluster
        violation: str | None = None
        try:
            self._play()
        except (Violation, SimulationStuck) as error:
            violation = f"{type(error).__name__}: {error}"
            cluster.note("violation", violation)
        finally:
            cluster.close()
        told = [txn.told for txn in cluster.ledger.txns]
        return Report(
            self.seed,
            cluster.trace.fingerprint,
            violation,
            cluster.timeline.steps,
            cluster.network.messages,
            cluster.timeline.now,
            told.count(True),
            told.count(False),
            told.count(None),
            dict(self._faults.counts),
            tuple(cluster.trace.lines),
        )

    def _play(self) -> None:
        cluster = self.cluster
        cluster.timeline.on_step = self._on_step
        for habits in self.shape.habits:
            cluster.start_producer(habits)
        faults = self._loop.create_task(self._faults.run())
        self._loop.create_task(self._revive())
        cluster.timeline.run_until_done(faults, self.shape.duration_s + _SETTLING_S)
        cluster.heal()
        self._settle()

    async def _revive(self) -> None:
        """Whoever sees to it that there is a producer starts another when one is over."""
        chance = self.cluster.chance.stream("revival")
        while not self.cluster.stopping:
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            for habits in self.shape.habits:
                mine = (
                    each for each in self.cluster.producers if each.life.transactional_id == habits.transactional_id
                )
                if all(each.over for each in mine):
                    self.cluster.start_producer(habits)

    def _on_step(self, loop: SimLoop) -> None:
        if self.cluster.ledger.violation is not None:
            raise self.cluster.ledger.violation
        if loop.failures:
            raise Violation(f"{loop.name}: {loop.failures[0]}")

    # --- settling ---

    def _settle(self) -> None:
        """All must come to rest, with every promise kept."""
        cluster = self.cluster
        deadline = cluster.timeline.now + _SETTLING_S
        while unsettled := self._unsettled():
            if cluster.timeline.now > deadline:
                raise Violation(f"not at rest {_SETTLING_S:g} s after the last fault: {unsettled}")
            if all(each.over for each in cluster.producers):
                self._finish_prepared()
            cluster.timeline.run_until(cluster.timeline.now + _LOOK_EVERY_S)
        for reader in cluster.readers:
            reader.settle()
        cluster.ledger.settle()

    def _finish_prepared(self) -> None:
        """Nobody but a next life ends what takes part in two-phase commits. It may be fenced by one long gone."""
        for habits in self.shape.habits:
            known = self.cluster.coordinator.shard and self.cluster.coordinator.shard.get(habits.transactional_id)
            if habits.two_phase and known and known.state is TransactionState.ONGOING:
                self.cluster.start_producer(habits)

    def _unsettled(self) -> str | None:
        cluster = self.cluster
        busy = [each.life.name for each in cluster.producers if not each.over]
        if busy:
            return f"{busy} are not over"
        shard = cluster.coordinator.shard
        if shard is None:
            return "the coordinator has not loaded its state"
        for transaction in shard:
            if not transaction.state.idle:
                return f"{transaction}"
        for place in cluster.places:
            partition = cluster.partition(place)
            ends = partition.last_stable_offset, partition.high_watermark, partition.end_offset
            if len(set(ends)) > 1:
                return f"{place}: last stable offset, high watermark and end are {ends}"
        return None
