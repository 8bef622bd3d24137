"""One broker without its doors: its logs, its place in the cluster, its coordinators, and the controller it may become.

The same whether it is alone, with coordination of its own, or one of many that coordinate through ZooKeeper: what it
hosts, and what it knows of others, it is always told by the controller, which may be itself.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.broker import coordination
from tidelog.broker.failure_notes import FailureNotes
from tidelog.broker.group_coordination import GroupCoordination
from tidelog.broker.group_registry import GroupRegistry
from tidelog.broker.membership import Membership
from tidelog.broker.peers import Peers
from tidelog.broker.router import Router
from tidelog.broker.topic_creation import TopicCreation
from tidelog.broker.transaction_coordination import TransactionCoordination
from tidelog.controller.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, ClusterImage
from tidelog.controller.observers import observers_among
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.runtime import Controller
from tidelog.controller.settings import Settings
from tidelog.controller.settings_follower import SettingsFollower
from tidelog.errors import PeerUnreachable
from tidelog.handlers import HANDLERS
from tidelog.handlers.handler import Services
from tidelog.net.address import Address
from tidelog.replication.fetch_sessions import FetchSessions
from tidelog.replication.fetchers import Fetchers
from tidelog.replication.group_commit import GroupCommit
from tidelog.replication.isr import LagBounds
from tidelog.replication.isr_keeper import IsrKeeper
from tidelog.replication.replicas import Replicas
from tidelog.storage.store import LogStore
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import ListenerSet
    from tidelog.handlers.handler import Handler
    from tidelog.replication.partition import Partition
    from tidelog.storage.fs import Filesystem
    from tidelog.wire.declare import Message
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

NO_CONTROLLER = -1
FETCH_SESSION_EVICTION_MS = 120_000
LAG_CHECKS_PER_BOUND = 2
PATIENCE_SESSIONS = 2
"""How many session timeouts to wait for the registration of an earlier life of this broker to vanish."""


class Node:
    def __init__(
        self, config: BrokerConfig, clock: Clock, fs: Filesystem, make_executor: Callable[[str, int], Executor]
    ) -> None:
        self._config = config
        self._clock = clock
        self._make_executor = make_executor
        self._stops: list[Callable[[], Awaitable[object]]] = []
        """What is to be stopped, the last to be started first."""
        self._logs_open = False
        """Before that, a clean stop must not be claimed for them."""
        self.store = LogStore(
            [Path(directory) for directory in config.log_dirs],
            fs,
            clock,
            open_files_max=min(config.tidelog_open_files_max, _open_files_limit() // 2),
            recovery_threads=config.num_recovery_threads_per_data_dir,
        )

    @property
    def broker_id(self) -> int:
        """Known once it is open."""
        return self._config.broker_id

    async def open(self, znodes: ZnodeStore) -> Router:
        """Finds its place in the cluster and opens its logs; gives what answers requests."""
        clock, store = self._clock, self.store
        await coordination.prepare_tree(znodes)
        config = self._config = await self._identified(znodes)
        self.image = image = ClusterImage(await coordination.cluster_id(znodes), NO_CONTROLLER)
        secret = await coordination.cluster_secret(znodes)
        store.claim(config.broker_id, image.cluster_id)
        fsync = self._make_executor("fsync", config.tidelog_fsync_threads)
        commit = GroupCommit(fsync, config.tidelog_fsync_threads)
        bounds = LagBounds(config.replica_lag_time_max_ms, config.replica_lag_max_messages)
        self.replicas = replicas = Replicas(store, config.broker_id, commit, clock=clock, bounds=bounds)
        self.settings = settings = Settings(znodes, image, config, replicas.configure)
        followed = SettingsFollower(znodes, settings, clock)
        await followed.start()
        self._stops.append(followed.stop)
        await asyncio.get_running_loop().run_in_executor(
            None, store.open, lambda topic: settings.topic_config(settings.of_topic(topic))
        )
        self._logs_open = True
        self.membership = Membership(
            znodes, config.broker_id, clock, patience_s=PATIENCE_SESSIONS * config.zookeeper_session_timeout_ms / 1000
        )
        failures = FailureNotes(znodes, config.broker_id)
        store.on_failure = failures.failed
        self._stops.append(failures.stop)
        served = {handler.api: handler for handler in HANDLERS}
        self._peers = Peers(config.broker_id, secret, served, self._address_of, self._answer)
        self._stops.append(self._peers.close)
        self.controller = Controller(
            znodes,
            clock,
            settings,
            self._peers.sender("controller", config.controller_socket_timeout_ms / 1000),
            broker_id=config.broker_id,
            cluster_id=image.cluster_id,
        )
        self._ask = self._peers.sender("asking", config.controller_socket_timeout_ms / 1000)
        self._replicate()
        topics = TopicCreation(self.controller, self.ask_controller)
        self.groups = GroupCoordination(image, settings, topics, clock)
        if config.tidelog_group_registry_enable:
            registry = GroupRegistry(znodes, config.broker_id, clock, self.groups.coordinator.partition_of)
            self.groups.coordinator.onlooker = registry
            registry.start()
            self._stops.append(registry.stop)
        self._stops.append(self._close_groups)
        replicas.watchers[OFFSETS_TOPIC] = self.groups
        producer_ids = ProducerIds(znodes, config.broker_id)
        self._stops.append(producer_ids.stop)
        self._coordinate_transactions(producer_ids, topics)
        services = self._services(producer_ids, topics, served, secret)
        self._fencing = services.fencing
        self.membership.on_registered = self._registered
        self._router = Router(services)
        return self._router

    def _coordinate_transactions(self, producer_ids: ProducerIds, topics: TopicCreation) -> None:
        timeout_s = self._config.controller_socket_timeout_ms / 1000
        self.transactions = TransactionCoordination(
            self.image,
            self.settings,
            topics,
            producer_ids,
            self._clock,
            send_markers=self._peers.sender("markers", timeout_s),
            send_questions=self._peers.sender("transactions", timeout_s),
        )
        self._stops.append(self.transactions.stop)
        self.replicas.watchers[TRANSACTIONS_TOPIC] = self.transactions

    async def _identified(self, znodes: ZnodeStore) -> BrokerConfig:
        """The settings with this broker's number: its own, the one its directories know, or a new one."""
        config = self._config
        if config.broker_id >= 0:
            return config
        meta = self.store.read_meta()
        if meta is not None:
            return config.with_id(meta.broker_id)
        broker_id = await coordination.new_broker_id(znodes, config.reserved_broker_max_id)
        logger.info("this broker is number %d from now on", broker_id)
        return config.with_id(broker_id)

    def _services(
        self,
        producer_ids: ProducerIds,
        topics: TopicCreation,
        served: dict[int, Handler[Any, Any]],
        secret: bytes,
    ) -> Services:
        config = self._config
        return Services(
            broker_id=config.broker_id,
            clock=self._clock,
            loop=asyncio.get_running_loop(),
            image=self.image,
            topics=self.controller,
            topics_on_demand=topics,
            settings=self.settings,
            producer_ids=producer_ids,
            replicas=self.replicas,
            store=self.store,
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, FETCH_SESSION_EVICTION_MS),
            groups=self.groups,
            transactions=self.transactions,
            blocking=self._make_executor("blocking", config.tidelog_blocking_threads),
            served=served,
            controller=self.controller,
            inter_broker_listener=config.endpoints.inter_broker_name,
            cluster_secret=secret,
            metadata_changed=self._metadata_changed,
        )

    def _replicate(self) -> None:
        """Follows leaders, and keeps account of those who follow."""
        config, replicas = self._config, self.replicas
        fetchers = Fetchers(
            config.broker_id,
            lambda: self.membership.epoch,
            lambda number: self._peers.sender(f"fetch-{number}", config.replica_socket_timeout_ms / 1000),
            self._clock,
            lambda: self.settings.broker,
        )
        replicas.following = fetchers
        replicas.observers_of = self._observers_of
        replicas.knows = self._knows
        self._stops.append(fetchers.stop)
        keeper = IsrKeeper(
            config.broker_id,
            lambda: self.membership.epoch,
            self.ask_controller,
            self._clock,
            check_lag=replicas.check_lag,
            check_interval_ms=config.replica_lag_time_max_ms // LAG_CHECKS_PER_BOUND,
        )
        replicas.proposals = keeper
        keeper.start()
        self._stops.append(keeper.stop)

    async def join(self, listeners: ListenerSet) -> None:
        """Makes itself known, once it can be reached, and stands for the controllership."""
        await self.membership.join(listeners, self._config.broker_rack)
        self._stops.append(self.membership.leave)
        await self.controller.start()
        self._stops.append(self.controller.stop)
        if self.controller.is_controller:
            await self.controller.idle()  # this broker knows what it hosts

    async def move_leaders_away(self) -> None:
        """Before a clean stop: has others lead what they can, so that nobody has to wait for anybody."""
        config = self._config
        if config.alone or not config.controlled_shutdown_enable or self.membership.epoch < 0:
            return
        request = ControlledShutdownRequest(broker_id=config.broker_id, broker_epoch=self.membership.epoch)
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt:
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
            try:
                reply = await self.ask_controller(request)
            except PeerUnreachable as error:
                logger.warning("the controller could not be asked to move leaders away: %s", error)
                continue
            if not reply.error_code and not reply.remaining_partitions:
                return
            logger.warning("this broker still leads %d partitions", len(reply.remaining_partitions))

    def release_clients(self) -> None:
        """Answers those who wait for records, or for the other members of their group: they will not come any more."""
        for partition in self.replicas:
            partition.wake_readers()
        self.groups.coordinator.close()

    async def leave(self) -> None:
        """Stops all that goes on, the last to be started first."""
        while self._stops:
            await self._stops.pop()()

    def close(self) -> None:
        """Closes the logs; blocking. After `leave`, and after all threads have ended."""
        if self._logs_open:
            self.store.close(self.replicas.high_watermarks())
        else:
            self.store.abandon()

    async def ask_controller(self, request: Message) -> Any:
        """Raises PeerUnreachable when there is no controller to be asked."""
        controller = self._config.broker_id if self.controller.is_controller else self.image.controller_id
        if controller == NO_CONTROLLER:
            raise PeerUnreachable("there is no controller now")
        return await self._ask(controller, request)

    def _registered(self, epoch: int) -> None:
        self._fencing.broker_epoch = epoch

    def _observers_of(self, partition: Partition) -> tuple[int, ...]:
        racks = {broker.broker_id: broker.rack for broker in self.image.brokers.values()}
        named = partition.log.config.tidelog_observer_racks
        return observers_among(partition.replicas, racks, named, isr=partition.isr)

    def _knows(self, topic: str, partition: int) -> bool:
        found = self.image.topics.get(topic)
        return found is not None and 0 <= partition < len(found.partitions)

    def _metadata_changed(self, deleted: tuple[str, ...]) -> None:
        self._peers.hang_up_on_absent()
        self.groups.topics_changed(deleted)
        self.transactions.topics_changed(deleted)

    async def _close_groups(self) -> None:
        self.groups.coordinator.close()

    async def _answer(self, request: Message) -> Message:
        return await self._router.answer(request, self._config.broker_id)

    def _address_of(self, broker_id: int) -> Address | None:
        """A controller knows of brokers before they are told of themselves."""
        found = self.controller.state.brokers.get(broker_id) or self.image.brokers.get(broker_id)
        endpoint = found.endpoints.get(self._config.endpoints.inter_broker_name) if found else None
        return Address(endpoint.host, endpoint.port) if endpoint else None


def _open_files_limit() -> int:
    """What the system allows this process; half of it is left to connections."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
