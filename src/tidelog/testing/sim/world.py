"""One simulated world: its time, its chance, its network, its ZooKeeper, and the machines in it.

    with World(seed=7) as world:
        loop = world.new_loop("broker 1")
        world.run(some_coroutine(), loop, within_s=10)

While a world is open, what programs take for true randomness (`secrets`, `uuid`) comes from its seed too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelog.broker import node as broker_node
from tidelog.testing.sim.chance import Chance
from tidelog.testing.sim.ensemble import Ensemble
from tidelog.testing.sim.network import SimNetwork
from tidelog.testing.sim.process import SimPeers
from tidelog.testing.sim.sim_clock import SimClock
from tidelog.testing.sim.stand_ins import StandIns
from tidelog.testing.sim.timeline import SimLoop, Timeline
from tidelog.testing.sim.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class World:
    def __init__(self, seed: int, echo: Callable[[str], None] | None = None) -> None:
        self.chance = Chance(seed)
        self.timeline = Timeline()
        self.trace = Trace(echo)
        self.loops: list[SimLoop] = []
        self.caretaker = self.new_loop("caretaker")
        """A loop that is never stopped, for those who look after machines."""
        ether = self.new_loop("network")
        self.network = SimNetwork(self.timeline, ether, self.trace, self.chance.stream("network"))
        self.ensemble = Ensemble(self.timeline, self.new_loop("zookeeper"), self.network, SimClock(self.timeline))
        self._stand_ins = StandIns()

    def new_loop(self, name: str) -> SimLoop:
        chance = self.chance.stream(f"loop {len(self.loops)} {name}")
        loop = SimLoop(self.timeline, name, chance)  # type: ignore[abstract] # it has no sockets, pipes and signals
        self.loops.append(loop)
        return loop

    def note(self, who: object, what: str) -> None:
        self.trace.note(self.timeline.now, who, what)

    def run(self, coroutine: Coroutine[Any, Any, T], loop: SimLoop, *, within_s: float) -> T:
        """Runs the world until the coroutine is done."""
        return self.timeline.run_until_done(loop.create_task(coroutine), within_s)

    @property
    def failures(self) -> list[str]:
        """What nobody caught, anywhere."""
        return [f"{loop.name}: {failure}" for loop in self.loops for failure in loop.failures]

    def __enter__(self) -> Self:
        self._stand_ins.seed_secrets(self.chance.stream("secrets"))
        self._stand_ins.replace(broker_node, "Peers", self._make_peers)
        return self

    def __exit__(self, *_exception: object) -> None:
        for loop in self.loops:
            loop.kill()
        for loop in self.loops:
            loop.discard()
        self._stand_ins.remove()

    def _make_peers(
        self, local_id: int, _secret: bytes, _served: Any, address_of: Any, answer_locally: Any
    ) -> SimPeers:
        return SimPeers(self.network, local_id, address_of, answer_locally)
