"""A broker's process in the simulation: the real `broker/node.py`, started and stopped as `broker/app.py` does it.

Left out is what the simulation has no use for: sockets, the proof by which brokers know each other, compaction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.broker.maintenance import Maintenance
from tidelog.broker.node import Node
from tidelog.errors import PeerUnreachable
from tidelog.handlers import HANDLERS
from tidelog.testing.sim.sim_znodes import SimSession
from tidelog.testing.sim.timeline import SimLoop, SimThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.broker.router import Router
    from tidelog.config.broker import BrokerConfig
    from tidelog.handlers.handler import Handler
    from tidelog.net.address import Address
    from tidelog.replication.partition import Partition
    from tidelog.storage.store import LogStore
    from tidelog.testing.forgetful_fs import ForgetfulFilesystem
    from tidelog.testing.sim.network import SimNetwork
    from tidelog.testing.sim.sim_clock import SimClock
    from tidelog.testing.sim.world import World
    from tidelog.wire.declare import Message

_POLL_S = 0.001


class SimPeers:
    """In place of `broker/peers.py`: the way to other brokers, over the simulated network."""

    def __init__(
        self,
        network: SimNetwork,
        local_id: int,
        address_of: Callable[[int], Address | None],
        answer_locally: Callable[[Message], Awaitable[Message]],
    ) -> None:
        self._network = network
        self._local_id = local_id
        self._address_of = address_of
        self._answer_locally = answer_locally
        self._asking: dict[asyncio.Task[Any], int] = {}
        """What was sent and is not answered, and to whom."""
        self._hung_up: set[asyncio.Task[Any]] = set()

    def sender(self, purpose: str, timeout_s: float) -> Callable[[int, Message], Awaitable[Any]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        remote = self._network.sender(self._local_id, loop, purpose, timeout_s)

        async def send(broker_id: int, request: Message) -> Message:
            if broker_id == self._local_id:
                return await self._answer_locally(request)
            if self._address_of(broker_id) is None:
                raise PeerUnreachable(f"broker {broker_id} is not in the cluster now")
            asking = loop.create_task(self._ask(remote, broker_id, request))
            return await self._wait(asking, broker_id)

        return send

    @staticmethod
    async def _ask(remote: Callable[[int, Message], Awaitable[Any]], broker_id: int, request: Message) -> Any:
        return await remote(broker_id, request)

    async def _wait(self, asking: asyncio.Task[Any], broker_id: int) -> Message:
        self._asking[asking] = broker_id
        try:
            answer: Message = await asking
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if asking not in self._hung_up or (waiting is not None and waiting.cancelling()):
                raise
            raise PeerUnreachable(f"broker {broker_id} has left the cluster") from None
        finally:
            del self._asking[asking]
            self._hung_up.discard(asking)
        return answer

    def hang_up_on_absent(self) -> None:
        for asking, broker_id in self._asking.items():
            if self._address_of(broker_id) is None:
                self._hung_up.add(asking)
                asking.cancel()

    async def close(self) -> None:
        """Connections end with the process."""


class BrokerCore:
    """One life of a broker. `start` may fail as a real start does; whoever started it starts it again."""

    def __init__(
        self,
        world: World,
        loop: SimLoop,
        config: BrokerConfig,
        fs: ForgetfulFilesystem,
        clock: SimClock,
        on_open: Callable[[BrokerCore], None],
    ) -> None:
        self.broker_id = config.broker_id
        self.loop = loop
        self._world = world
        self._config = config
        self._clock = clock
        self._on_open = on_open
        self.served: dict[int, Handler[Any, Any]] = {handler.api: handler for handler in HANDLERS}
        self._threads: list[SimThreads] = []
        self._node = Node(config, clock, fs, self._make_threads)
        self._znodes: SimSession | None = None
        self._router: Router | None = None
        self._joined = False
        self._maintenance: Maintenance | None = None

    @property
    def store(self) -> LogStore:
        return self._node.store

    @property
    def partitions(self) -> Iterable[Partition]:
        return self._node.replicas if self._router else ()

    @property
    def service(self) -> Router:
        assert self._router is not None, "nobody is attached to the network before it can answer"
        return self._router

    async def start(self) -> None:
        config, node = self._config, self._node
        node.store.lock()
        timeout_s = config.zookeeper_session_timeout_ms / 1000
        self._znodes = await SimSession.open(self._world.ensemble, self.broker_id, self.loop, timeout_s)
        router = await node.open(self._znodes)
        self._on_open(self)
        self._router = router
        self._world.network.attach(self.broker_id, self)
        await node.join(config.endpoints)
        self._joined = True
        self._maintenance = Maintenance(node.replicas, node.store, self._clock, lambda: node.settings.broker)
        self._maintenance.start()
        self._world.note(self.broker_id, f"is up with epoch {node.membership.epoch}")

    async def stop(self) -> None:
        """A clean stop: leaders move away first."""
        node = self._node
        if self._joined:
            await node.move_leaders_away()
        self._world.network.detach(self.broker_id, silently=False)
        if self._maintenance:
            await self._maintenance.stop()
        await node.leave()
        while any(threads.jobs for threads in self._threads):  # noqa: ASYNC110 - as the shutdown of a pool waits
            await asyncio.sleep(_POLL_S)
        await self.loop.run_in_executor(None, node.close)
        if self._znodes:
            await self._znodes.close()

    def _make_threads(self, _name: str, _count: int) -> SimThreads:
        self._threads.append(SimThreads())
        return self._threads[-1]
