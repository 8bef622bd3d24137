"""What goes wrong, and when: chosen by the seed, one fault after the other, many of them overlapping."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from tidelog.testing.sim.chance import exponential_gaps, weighted

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tidelog.testing.sim.timeline import SimLoop
    from tidelog.testing.transaction_sim.cluster import SimCluster
    from tidelog.testing.transaction_sim.shape import Shape


class Faults:
    def __init__(self, cluster: SimCluster, loop: SimLoop, shape: Shape, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._loop = loop
        self._shape = shape
        self._chance = chance
        self._kinds: dict[str, Callable[[], None]] = {
            "coordinator moves": self._move_coordinator,
            "coordinator starts over": self._start_over,
            "coordinator refuses": self._refuse,
            "leader moves": self._move_leader,
            "broker dies": self._kill_broker,
            "broker pauses": self._pause_broker,
            "producer pauses": self._pause_producer,
            "producer dies": self._kill_producer,
            "second life": self._second_life,
            "storm": self._storm,
            "no producer ids": self._no_ids,
        }

    async def run(self) -> None:
        choices = sorted(self._shape.weights.items())
        started_s = self._loop.time()
        for at_s in exponential_gaps(self._chance, self._shape.mean_gap_s, self._shape.duration_s):
            await asyncio.sleep(started_s + at_s - self._loop.time())
            kind = weighted(self._chance, choices)
            self.counts[kind] += 1
            self._cluster.note("faults", kind)
            self._kinds[kind]()
        await asyncio.sleep(max(started_s + self._shape.duration_s - self._loop.time(), 0.0))

    def _later(self, within_s: float, then: Callable[[], None]) -> None:
        self._loop.call_later(self._chance.uniform(0.0, within_s), then)

    # --- coordinators ---

    def _move_coordinator(self) -> None:
        """The one before may take its time to notice."""
        unnoticed_s = self._chance.choice((0.0, 0.0, 0.5, 3.0))
        self._cluster.move_coordinator(self._another(self._cluster.coordinator.number), unnoticed_s)

    def _start_over(self) -> None:
        self._cluster.coordinator.loop.call_soon(self._cluster.reign.give_up_waiting)

    def _refuse(self) -> None:
        reign = self._cluster.reign
        reign.refuses = True

        def accept() -> None:
            reign.refuses = False

        self._later(1.5, accept)

    def _no_ids(self) -> None:
        self._cluster.producer_ids.empty = True
        self._later(2.0, self._cluster.producer_ids.refill)

    # --- brokers ---

    def _another(self, number: int) -> int:
        return self._chance.choice([each for each in self._cluster.brokers if each != number])

    def _move_leader(self) -> None:
        place = self._chance.choice(self._cluster.places)
        self._cluster.move_leader(place, self._another(self._cluster.partition(place).leader))

    def _kill_broker(self) -> None:
        self._cluster.replace_broker(self._chance.choice(list(self._cluster.brokers)), self._another)

    def _pause_broker(self) -> None:
        """Others may take its place meanwhile, and it goes on as if nothing had happened."""
        broker = self._cluster.brokers[self._chance.choice(list(self._cluster.brokers))]
        broker.loop.freeze()
        self._later(4.0, broker.loop.thaw)
        if self._chance.random() < 0.6:
            self._cluster.leave_to_others(broker.number, self._another)

    def _storm(self) -> None:
        network, usual = self._cluster.network, self._shape.weather.lost
        network.storm(0.6)
        self._later(1.5, lambda: network.storm(usual))

    # --- producers ---

    def _pause_producer(self) -> None:
        producer = self._chance.choice(self._cluster.producers)
        producer.loop.freeze()
        self._later(2.5 * producer.habits.timeout_ms / 1000, producer.loop.thaw)
        if self._chance.random() < 0.5:
            self._cluster.start_producer(producer.habits)

    def _kill_producer(self) -> None:
        producer = self._chance.choice(self._cluster.producers)
        producer.loop.kill()
        producer.over = True

    def _second_life(self) -> None:
        self._cluster.start_producer(self._chance.choice(self._shape.habits))
