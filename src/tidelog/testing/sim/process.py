"""A broker's process in the simulation: the rooms of `broker/app.py` that make a cluster, wired to a simulated world.

Left out is what the simulation has no use for: sockets, TLS and proofs of identity, groups, compaction.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tidelog.broker import coordination
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.membership import Membership
from tidelog.broker.router import Router
from tidelog.controller.image import ClusterImage
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.runtime import Controller
from tidelog.controller.settings import Settings
from tidelog.controller.settings_follower import SettingsFollower
from tidelog.errors import PeerUnreachable
from tidelog.handlers import (
    HANDLERS,
    alter_partition,
    alter_partition_reassignments,
    controlled_shutdown,
    elect_leaders,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from tidelog.handlers.handler import Handler, Services
from tidelog.replication.fencing import Fencing
from tidelog.replication.fetch_sessions import FetchSessions
from tidelog.replication.fetchers import Fetchers
from tidelog.replication.group_commit import GroupCommit
from tidelog.replication.isr import LagBounds
from tidelog.replication.isr_keeper import IsrKeeper
from tidelog.replication.replicas import Replicas
from tidelog.storage.store import LogStore
from tidelog.testing.sim.server_end import LISTENER
from tidelog.testing.sim.sim_znodes import SimSession
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.partition import Partition
    from tidelog.testing.forgetful_fs import ForgetfulFilesystem
    from tidelog.testing.sim.sim_clock import SimClock
    from tidelog.testing.sim.timeline import SimLoop
    from tidelog.testing.sim.world import World
    from tidelog.wire.declare import Message

_FETCH_SESSION_EVICTION_MS = 120_000
_FSYNC_SLOTS = 2
_PATIENCE_S = 20.0
_SENDER_TIMEOUT_S = 4.0
_LAG_CHECKS_PER_BOUND = 2


_CLUSTER_HANDLERS: tuple[Handler[Any, Any], ...] = (
    alter_partition.HANDLER,
    alter_partition_reassignments.HANDLER,
    controlled_shutdown.HANDLER,
    elect_leaders.HANDLER,
    leader_and_isr.HANDLER,
    stop_replica.HANDLER,
    update_metadata.HANDLER,
)


@dataclass(slots=True)
class _ClusterServices(Services):
    controller: Controller | None = None


class _LiveFencing(Fencing):
    """Knows the broker's epoch at all times, also after it had to register again."""

    __slots__ = ("_membership",)

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        super().__init__()

    @property
    def broker_epoch(self) -> int:
        return self._membership.epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: int) -> None:
        """It is the membership's."""


class NoExecutor(Executor):
    """Handed to those who give work to threads by way of a loop: the simulated loops do it themselves."""

    def submit(self, *_arguments: object, **_keywords: object) -> NoReturn:
        raise AssertionError("work for threads goes through the loop")


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
        self.store = LogStore(list(config.log_dirs), fs, clock, open_files_max=1000, recovery_threads=1)
        self.served: dict[int, Handler[Any, Any]] = {
            handler.api: handler for handler in (*HANDLERS, *_CLUSTER_HANDLERS)
        }
        self.partitions: Iterable[Partition] = ()
        self._world = world
        self._config = config
        self._clock = clock
        self._on_open = on_open
        self._membership: Membership | None = None
        self._router: Router | None = None
        self._replicas: Replicas | None = None
        self._image = ClusterImage("", -1)
        self._own_sender = world.network.sender(self.broker_id, loop, "asking", _SENDER_TIMEOUT_S)
        self._stops: list[Callable[[], Awaitable[object]]] = []
        """What is to be stopped, the last to be started first."""

    async def start(self) -> None:
        config, clock, store = self._config, self._clock, self.store
        store.lock()
        timeout_s = config.zookeeper_session_timeout_ms / 1000
        znodes = await SimSession.open(self._world.ensemble, self.broker_id, self.loop, timeout_s)
        self._stops.append(znodes.close)
        await coordination.prepare_tree(znodes)
        image = self._image
        image.cluster_id = await coordination.cluster_id(znodes)
        store.claim(self.broker_id, image.cluster_id)
        commit = GroupCommit(NoExecutor(), _FSYNC_SLOTS)
        replicas = Replicas(
            store,
            self.broker_id,
            commit,
            clock=clock,
            bounds=LagBounds(config.replica_lag_time_max_ms, config.replica_lag_max_messages),
        )
        settings = Settings(znodes, image, config, replicas.configure)
        followed = SettingsFollower(znodes, settings, clock)
        await followed.start()
        self._stops.append(followed.stop)
        await self.loop.run_in_executor(None, store.open, lambda topic: settings.topic_config(settings.of_topic(topic)))
        self._on_open(self)
        self.partitions = replicas
        membership = Membership(znodes, self.broker_id, clock, patience_s=_PATIENCE_S)
        fetchers = Fetchers(
            self.broker_id,
            lambda: membership.epoch,
            lambda number: self._sender(f"fetch-{number}", config.replica_socket_timeout_ms / 1000),
            clock,
            lambda: settings.broker,
        )
        replicas.following = fetchers
        self._stops.append(fetchers.stop)
        keeper = IsrKeeper(
            self.broker_id,
            lambda: membership.epoch,
            self._ask_controller,
            clock,
            check_lag=replicas.check_lag,
            check_interval_ms=config.replica_lag_time_max_ms // _LAG_CHECKS_PER_BOUND,
        )
        replicas.proposals = keeper
        keeper.start()
        self._stops.append(keeper.stop)
        controller = Controller(
            znodes,
            clock,
            settings,
            self._sender("controller", _SENDER_TIMEOUT_S),
            broker_id=self.broker_id,
            cluster_id=image.cluster_id,
        )
        self._membership, self._replicas = membership, replicas
        chance = self._world.chance.stream(f"fetch sessions {self.broker_id}")
        services = _ClusterServices(
            broker_id=self.broker_id,
            clock=clock,
            loop=self.loop,
            image=image,
            topics=controller,
            topics_on_demand=controller,
            settings=settings,
            producer_ids=ProducerIds(znodes, self.broker_id),
            replicas=replicas,
            store=store,
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots,
                _FETCH_SESSION_EVICTION_MS,
                lambda: chance.randrange(1, 1 << 31),
            ),
            groups=None,  # type: ignore[arg-type] # there are none in the simulation
            blocking=NoExecutor(),
            served=self.served,
            inter_broker_listener=LISTENER,
            fencing=_LiveFencing(membership),
            controller=controller,
        )
        self._router = Router(services)
        self._world.network.attach(self.broker_id, self)
        await membership.join(config.endpoints, config.broker_rack)
        self._stops.append(membership.leave)
        await controller.start()
        self._stops.append(controller.stop)
        maintenance = Maintenance(replicas, store, clock, lambda: settings.broker)
        maintenance.start()
        self._stops.append(maintenance.stop)
        self._world.note(self.broker_id, f"is up with epoch {membership.epoch}")

    @property
    def service(self) -> Router:
        assert self._router is not None, "nobody is attached to the network before it can answer"
        return self._router

    async def stop(self) -> None:
        """A clean stop: leaders move away first."""
        if self._membership is not None and self._membership.epoch >= 0:
            await self._move_leaders(self._membership.epoch)
        self._world.network.detach(self.broker_id, silently=False)
        while self._stops:
            await self._stops.pop()()
        if self._replicas is not None:
            self.store.close(self._replicas.high_watermarks())

    async def _move_leaders(self, broker_epoch: int) -> None:
        request = ControlledShutdownRequest(broker_id=self.broker_id, broker_epoch=broker_epoch)
        for _ in range(self._config.controlled_shutdown_max_retries):
            try:
                reply = await self._ask_controller(request)
                if not reply.error_code and not reply.remaining_partitions:
                    return
            except PeerUnreachable:
                pass
            await asyncio.sleep(self._config.controlled_shutdown_retry_backoff_ms / 1000)

    def _sender(self, purpose: str, timeout_s: float) -> Callable[[int, Message], Awaitable[Any]]:
        remote = self._world.network.sender(self.broker_id, self.loop, purpose, timeout_s)

        async def send(broker_id: int, request: Message) -> Message:
            if broker_id == self.broker_id:
                return await self.service.answer(request, self.broker_id)
            answer: Message = await remote(broker_id, request)
            return answer

        return send

    async def _ask_controller(self, request: Message) -> Any:
        controller = self._image.controller_id
        if controller == self.broker_id:
            return await self.service.answer(request, self.broker_id)
        return await self._own_sender(controller, request)
