"""What goes wrong, and when: chosen by the seed, one fault after the other, many of them overlapping.

A machine that loses what it did not sync, or its whole disk, is more than three replicas without fsync promise to
survive in every case: others must have the records and stay until it is out of the in-sync replicas. So such a fault
waits for a quiet moment, and others wait for its end. With fsync before every acknowledgement only a wiped disk does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.testing.forgetful_fs import Forget
from tidelog.testing.sim.chance import weighted
from tidelog.testing.sim.ensemble import ADDRESS as ZOOKEEPER
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from tidelog.testing.sim.checker import Checker
    from tidelog.testing.sim.operating import Operator
    from tidelog.testing.sim.world import World

_POLL_S = 0.25
_PATIENCE_POLLS = 120
_QUIET_POLLS = 36
"""Longer than a session's timeout: who was killed and came back may still be taken for dead until then."""


class Broker(Protocol):
    """A broker that things are done to."""

    broker_id: int

    @property
    def running(self) -> bool: ...

    def start(self) -> None: ...

    def kill(self, forget: Forget = ...) -> None: ...

    def wipe(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def stop_cleanly(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How much goes wrong in a run."""

    weights: Mapping[str, float]
    """How often each kind of fault comes, against the others."""
    mean_gap_s: float = 2.5
    duration_s: float = 60.0
    synced: bool = False
    """Whether all that is acknowledged has been synced, so that any machine may lose the rest at any time."""


DEFAULT_WEIGHTS = {
    "kill": 4.0,
    "pause": 3.0,
    "stop": 2.0,
    "cut off": 3.0,
    "cut pair": 3.0,
    "cut from zookeeper": 2.0,
    "storm": 2.0,
    "disconnect": 1.5,
    "expire": 1.5,
    "zookeeper down": 0.7,
    "power cut": 1.0,
    "wipe": 0.5,
    "move": 1.5,
    "prefer": 1.0,
}


class Faults:
    def __init__(
        self, world: World, checker: Checker, brokers: Sequence[Broker], operator: Operator, plan: FaultPlan
    ) -> None:
        self._operator = operator
        self._world = world
        self._checker = checker
        self._brokers = list(brokers)
        self._plan = plan
        self._chance = world.chance.stream("faults")
        self._loop = world.new_loop("faults")
        self._ongoing: dict[int, str] = {}
        self._number = 0
        self._exclusive = False
        self.counts: dict[str, int] = {}
        self.kinds: dict[str, Callable[[Broker], Awaitable[None]]] = {
            "kill": self._kill,
            "pause": self._pause,
            "stop": self._stop,
            "cut off": self._cut_off,
            "cut pair": self._cut_pair,
            "cut from zookeeper": self._cut_from_zookeeper,
            "storm": self._storm,
            "disconnect": self._disconnect,
            "expire": self._expire,
            "zookeeper down": self._zookeeper_down,
            "power cut": self._power_cut,
            "wipe": self._wipe,
            "move": self._move,
            "prefer": self._prefer,
        }

    def start(self) -> asyncio.Task[None]:
        return self._loop.create_task(self._run())

    async def _run(self) -> None:
        until = self._world.timeline.now + self._plan.duration_s
        tasks = []
        while self._world.timeline.now < until:
            await asyncio.sleep(self._chance.expovariate(1 / self._plan.mean_gap_s))
            if self._exclusive:
                continue
            kind = weighted(self._chance, list(self._plan.weights.items()))
            broker = self._chance.choice(self._brokers)
            tasks.append(self._loop.create_task(self._one(kind, broker)))
        await asyncio.gather(*tasks)

    async def _one(self, kind: str, broker: Broker) -> None:
        self._number += 1
        number = self._number
        self._ongoing[number] = kind
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._world.note("faults", f"{number} {kind} {broker.broker_id}")
        await self.kinds[kind](broker)
        del self._ongoing[number]
        self._world.note("faults", f"{number} over")

    def _lasting_s(self) -> float:
        """Mostly short of a session's timeout, sometimes well past it."""
        return self._chance.choice((self._chance.uniform(0.05, 2.0), self._chance.uniform(2.0, 15.0)))

    def _lossy(self) -> Forget:
        return self._chance.choice((Forget.SOMETHING, Forget.EVERYTHING))

    # -- processes ----------------------------------------------------------------------------------------------

    async def _kill(self, broker: Broker) -> None:
        if broker.running:
            broker.kill(self._lossy() if self._plan.synced else Forget.NOTHING)
            await asyncio.sleep(self._lasting_s())
            broker.start()

    async def _pause(self, broker: Broker) -> None:
        if broker.running:
            broker.pause()
            await asyncio.sleep(self._lasting_s())
            broker.resume()

    async def _stop(self, broker: Broker) -> None:
        if broker.running:
            await broker.stop_cleanly()
            await asyncio.sleep(self._lasting_s())
            broker.start()

    # -- the network --------------------------------------------------------------------------------------------

    async def _cut(self, ways: Sequence[tuple[int | str, int | str]]) -> None:
        for source, target in ways:
            self._world.network.cut(source, target)
        await asyncio.sleep(self._lasting_s())
        for source, target in ways:
            self._world.network.heal(source, target)

    def _ways(self, one: int | str, other: int | str) -> list[tuple[int | str, int | str]]:
        """Both ways, or one."""
        return self._chance.choice(([(one, other), (other, one)], [(one, other)], [(other, one)]))

    async def _cut_off(self, broker: Broker) -> None:
        """From the other brokers, but not from ZooKeeper and clients."""
        others = [each.broker_id for each in self._brokers if each is not broker]
        await self._cut([way for other in others for way in self._ways(broker.broker_id, other)])

    async def _cut_pair(self, broker: Broker) -> None:
        other = self._chance.choice([each for each in self._brokers if each is not broker])
        await self._cut(self._ways(broker.broker_id, other.broker_id))

    async def _cut_from_zookeeper(self, broker: Broker) -> None:
        await self._cut(self._ways(broker.broker_id, ZOOKEEPER))

    async def _storm(self, _broker: Broker) -> None:
        weather = self._world.network.weather
        weather.loss_chance, weather.slow_chance = self._chance.uniform(0, 0.05), self._chance.uniform(0, 0.2)
        await asyncio.sleep(self._lasting_s())
        weather.loss_chance, weather.slow_chance = 0.0, 0.01

    # -- ZooKeeper ----------------------------------------------------------------------------------------------

    async def _disconnect(self, broker: Broker) -> None:
        self._world.ensemble.disconnect(broker.broker_id)

    async def _expire(self, broker: Broker) -> None:
        self._world.ensemble.expire_address(broker.broker_id)

    async def _zookeeper_down(self, _broker: Broker) -> None:
        self._world.ensemble.go_down()
        await asyncio.sleep(self._lasting_s())
        self._world.ensemble.come_up()

    # -- what operators do at the wrong moment ------------------------------------------------------------------

    async def _move(self, _broker: Broker) -> None:
        topic, assignment = self._chance.choice(list(self._checker.assignments.items()))
        number = self._chance.choice(list(assignment.partitions))
        count = len(assignment.partitions[number]) - len(assignment.adding.get(number, ()))
        wanted = self._chance.sample([each.broker_id for each in self._brokers], max(count, 1))
        cancels = self._chance.random() < 0.2
        await self._order(self._operator.move(TopicPartition(topic, number), None if cancels else wanted))

    async def _prefer(self, _broker: Broker) -> None:
        await self._order(self._operator.prefer())

    async def _order(self, order: Coroutine[Any, Any, None]) -> None:
        task = self._operator.loop.create_task(order)
        await self._comes_true(task.done)

    # -- disks --------------------------------------------------------------------------------------------------

    async def _power_cut(self, broker: Broker) -> None:
        if self._plan.synced:
            await self._kill(broker)
            return
        await self._alone(broker, lambda: broker.kill(self._lossy()))

    async def _wipe(self, broker: Broker) -> None:
        await self._alone(broker, broker.wipe)

    async def _alone(self, broker: Broker, strike: Callable[[], None]) -> None:
        """Waits for a quiet moment, strikes, and keeps it quiet until nobody counts on the broker's log any more."""
        if self._exclusive:
            return
        self._exclusive = True
        if await self._comes_true(lambda: len(self._ongoing) == 1 and self._is_well(), _QUIET_POLLS):
            strike()
            await self._comes_true(lambda: not self._counts(broker))
            await asyncio.sleep(self._lasting_s())
            broker.start()
        self._exclusive = False

    async def _comes_true(self, condition: Callable[[], bool], polls: int = 1) -> bool:
        """Whether it was found true so many times on end, before patience ends."""
        in_a_row = 0
        for _ in range(_PATIENCE_POLLS):
            in_a_row = in_a_row + 1 if condition() else 0
            if in_a_row == polls:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    def _is_well(self) -> bool:
        """Everybody runs, and every partition has somebody else in sync whoever is struck."""
        return all(each.running for each in self._brokers) and all(
            len(state.isr) > 1 for state in self._checker.states.values()
        )

    def _counts(self, broker: Broker) -> bool:
        return any(broker.broker_id in state.isr for state in self._checker.states.values())
