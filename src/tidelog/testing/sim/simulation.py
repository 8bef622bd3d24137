"""One run: a cluster is born from a seed, clients use it, things go wrong, all heals, and accounts are settled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.testing.sim.checker import Checker
from tidelog.testing.sim.clients import ClusterClient
from tidelog.testing.sim.consuming import SimConsumer
from tidelog.testing.sim.faults import DEFAULT_WEIGHTS, FaultPlan, Faults
from tidelog.testing.sim.ledger import Violation
from tidelog.testing.sim.node import SimNode
from tidelog.testing.sim.operating import Operator
from tidelog.testing.sim.producing import ACKS_ALL, ACKS_LEADER, SimProducer
from tidelog.testing.sim.settlement import settle_accounts
from tidelog.testing.sim.timeline import SimulationStuck
from tidelog.testing.sim.world import World
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tidelog.testing.sim.timeline import SimLoop

TOPIC = "tides"
_BIRTH_S = 60.0
_SETTLING_S = 240.0
_LOOK_EVERY_S = 1.0
_SEGMENT_BYTES = "4096"
_SIZES = ((3, 3, 2), (3, 3, 2), (4, 3, 2), (5, 3, 2), (5, 5, 3), (3, 2, 1))
"""Brokers, replicas of each partition, and how many of those must be in sync."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of cluster a run has; all of it follows from the seed unless given."""

    brokers: int
    replicas: int
    partitions: int
    min_in_sync: int
    fsync: bool
    faults: FaultPlan
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def choose(cls, chance: random.Random, duration_s: float = 40.0) -> Shape:
        brokers, replicas, min_in_sync = chance.choice(_SIZES)
        fsync = chance.random() < 0.25
        chosen = {kind: weight for kind, weight in DEFAULT_WEIGHTS.items() if chance.random() < 0.6}
        plan = FaultPlan(
            weights=chosen or DEFAULT_WEIGHTS,
            mean_gap_s=chance.choice((0.7, 2.0, 5.0)),
            duration_s=duration_s,
            synced=fsync,
        )
        return cls(brokers, replicas, chance.randint(1, 3), min_in_sync, fsync, plan)


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    fingerprint: str
    violation: str | None
    steps: int
    messages: int
    simulated_s: float
    acknowledged: int
    faults: Mapping[str, int]
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        outcome = self.violation or "kept all promises"
        return (
            f"seed {self.seed}: {outcome} ({self.simulated_s:.0f} s, {self.steps} steps, {self.messages} messages, "
            f"{self.acknowledged} batches acknowledged, {sum(self.faults.values())} faults, {self.fingerprint[:8]})"
        )


class Simulation:
    def __init__(self, seed: int, *, shape: Shape | None = None, echo: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.world = World(seed, echo)
        self.shape = shape or Shape.choose(self.world.chance.stream("shape"))
        self.checker = Checker(self.world)
        self.nodes: list[SimNode] = []
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.faults: Faults | None = None
        self._by_loop: dict[SimLoop, SimNode] = {}

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in range(self.shape.partitions)]

    def run(self) -> Report:
        """A violation is in the report; what is wrong with the simulation itself is raised."""
        violation: str | None = None
        with self.world:
            try:
                self._play()
            except (Violation, SimulationStuck) as error:
                violation = f"{type(error).__name__}: {error}"
                self.world.note("violation", violation)
        return Report(
            self.seed,
            self.world.trace.fingerprint,
            violation,
            self.world.timeline.steps,
            self.world.network.messages,
            self.world.timeline.now,
            sum(sent.acknowledged for producer in self.producers for sent in producer.sent),
            dict(self.faults.counts) if self.faults else {},
            tuple(self.world.trace.lines),
        )

    def _play(self) -> None:
        self.world.ensemble.on_change = self.checker.tree_changed
        self.world.timeline.on_step = self._on_step
        self._give_birth()
        self._start_clients()
        operator = Operator(self.world, self.checker, "operator", self._ids())
        self.faults = Faults(self.world, self.checker, self.nodes, operator, self.shape.faults)
        self.world.timeline.run_until_done(self.faults.start(), self.shape.faults.duration_s + _SETTLING_S)
        self._heal()
        self._settle()

    def _on_step(self, loop: SimLoop) -> None:
        node = self._by_loop.get(loop)
        if node is not None:
            self.checker.look_at(node)
        if self.checker.violation is not None:
            raise self.checker.violation
        if loop.failures:
            raise Violation(f"{loop.name}: {loop.failures[0]}")

    def _give_birth(self) -> None:
        shape = self.shape
        for broker_id in range(1, shape.brokers + 1):
            node = SimNode(self.world, self.checker, broker_id, self._settings(), self._new_life)
            self.nodes.append(node)
            node.start()
        admin = ClusterClient(self.world, self.checker, "admin", self._ids())
        chance = self.world.chance.stream("placement")
        placement = [chance.sample(self._ids(), shape.replicas) for _ in range(shape.partitions)]
        settings = {"min.insync.replicas": str(shape.min_in_sync), "internal.segment.bytes": _SEGMENT_BYTES}
        if shape.fsync:
            settings["tidelog.fsync.before.ack"] = "true"
        self.world.run(admin.create_topic(TOPIC, placement, settings), admin.loop, within_s=_BIRTH_S)

    def _ids(self) -> list[int]:
        return list(range(1, self.shape.brokers + 1))

    def _settings(self) -> dict[str, str]:
        return dict(self.shape.settings)

    def _new_life(self, node: SimNode) -> None:
        self._by_loop[node.loop] = node

    def _start_clients(self) -> None:
        kinds = ((ACKS_ALL, True), (ACKS_ALL, False), (ACKS_LEADER, False))
        for number, (acks, idempotent) in enumerate(kinds, 1):
            producer = SimProducer(
                self.world,
                self.checker,
                f"producer-{number}",
                self._ids(),
                partitions=self.partitions,
                acks=acks,
                idempotent=idempotent,
                pause_s=0.4,
            )
            self.producers.append(producer)
            producer.start()
        consumer = SimConsumer(self.world, self.checker, "consumer", self._ids(), self.partitions)
        self.consumers.append(consumer)
        consumer.start()

    def _heal(self) -> None:
        """Whatever is wrong with the world ends here; clients stop writing once they have their answers."""
        self.world.note("faults", "all is healed")
        self.world.network.heal_all()
        self.world.ensemble.come_up()
        for node in self.nodes:
            node.resume()
            if not node.running:
                node.start()
        for producer in self.producers:
            producer.stopping = True

    def _settle(self) -> None:
        """The cluster must come to rest, with every promise kept."""
        deadline = self.world.timeline.now + _SETTLING_S
        while True:
            unsettled = settle_accounts(self.checker, self.nodes, self.producers, self.consumers)
            if unsettled is None:
                return
            if self.world.timeline.now > deadline:
                raise Violation(f"not at rest {_SETTLING_S:g} s after the last fault: {unsettled}")
            self.world.timeline.run_until(self.world.timeline.now + _LOOK_EVERY_S)
