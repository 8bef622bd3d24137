"""One broker, wired: opens its store and logs, serves its listeners, and stops without losing anything.

Starting: coordination first, since it says which topics there are; then the logs; then the doors. Stopping goes the
other way, so that nothing is accepted that could not be kept.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidelog.broker import coordination
from tidelog.broker.cleaner import Cleaner
from tidelog.broker.group_coordination import GroupCoordination
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.router import Router
from tidelog.clock import SystemClock
from tidelog.config.definition import ConfigError
from tidelog.config.listeners import SecurityProtocol
from tidelog.controller.image import OFFSETS_TOPIC, BrokerImage, ClusterImage, Endpoint
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.settings import Settings
from tidelog.controller.topics import Topics
from tidelog.handlers import HANDLERS
from tidelog.handlers.handler import Services
from tidelog.net.admission import Admission, AdmissionLimits
from tidelog.net.limits import ConnectionLimits
from tidelog.net.listener import Listener, SocketOptions
from tidelog.replication.fetch_sessions import FetchSessions
from tidelog.replication.group_commit import GroupCommit
from tidelog.replication.replicas import Replicas
from tidelog.storage.fs import RealFilesystem
from tidelog.storage.store import LogStore
from tidelog.znodes.embedded import open_embedded

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import ListenerSet
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

COORDINATION_FILE = "coordination.sqlite"
FETCH_SESSION_EVICTION_MS = 120_000
DRAIN_S = 5.0


class Broker:
    """`async with Broker(config)` runs one."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._executors: list[ThreadPoolExecutor] = []
        self._store: LogStore | None = None
        self._replicas: Replicas | None = None
        """Set once all logs are open: before that, a clean stop must not be claimed for them."""
        self._znodes: ZnodeStore | None = None
        self._groups: GroupCoordination | None = None
        self._maintenance: Maintenance | None = None
        self._cleaner: Cleaner | None = None
        self._listeners: list[Listener] = []
        self.endpoints: ListenerSet = config.endpoints
        """Where the broker listens and what it advertises; ports are known once it has started."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.stop()

    async def _start(self) -> None:
        config, clock = self._config, self._clock
        refuse_what_is_not_there(config)
        for warning in config.warnings:
            logger.warning("%s", warning)
        store = self._store = LogStore(
            [Path(directory) for directory in config.log_dirs],
            RealFilesystem(),
            clock,
            open_files_max=min(config.tidelog_open_files_max, _open_files_limit() // 2),
            recovery_threads=config.num_recovery_threads_per_data_dir,
        )
        store.lock()
        znodes = self._znodes = await open_embedded(Path(config.log_dirs[0]) / COORDINATION_FILE, clock)
        await coordination.prepare_tree(znodes)
        image = ClusterImage(await coordination.cluster_id(znodes), config.broker_id)
        store.claim(config.broker_id, image.cluster_id)
        controller_epoch = await coordination.become_controller(znodes, config.broker_id, clock.now_ms())
        commit = GroupCommit(self._executor("fsync", config.tidelog_fsync_threads), config.tidelog_fsync_threads)
        replicas = Replicas(store, config.broker_id, commit)
        settings = Settings(znodes, image, config, replicas.configure)
        await settings.load()
        # Before the topics: a new topic is placed on the brokers that are there.
        image.brokers[config.broker_id] = BrokerImage(config.broker_id, {}, config.broker_rack)
        topics = Topics(znodes, image, settings, controller_epoch)
        await topics.load()
        await self._open_logs(store, image, settings)
        groups = self._groups = GroupCoordination(image, settings, topics, clock)
        replicas.watchers[OFFSETS_TOPIC] = groups
        topics.on_change = groups.topics_changed
        topics.host_all(replicas)
        self._replicas = replicas
        services = Services(
            broker_id=config.broker_id,
            clock=clock,
            loop=asyncio.get_running_loop(),
            image=image,
            topics=topics,
            settings=settings,
            producer_ids=ProducerIds(znodes, config.broker_id),
            replicas=replicas,
            store=store,
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, FETCH_SESSION_EVICTION_MS),
            groups=groups,
            blocking=self._executor("blocking", config.tidelog_blocking_threads),
            served={handler.api: handler for handler in HANDLERS},
            inter_broker_listener=self.endpoints.inter_broker_name,
            cluster_secret=await coordination.cluster_secret(znodes),
        )
        await self._listen(Router(services))
        epoch = await coordination.register(
            znodes, config.broker_id, self.endpoints, config.broker_rack, clock.now_ms()
        )
        image.brokers[config.broker_id] = BrokerImage(
            config.broker_id,
            {endpoint.name: Endpoint(endpoint.host, endpoint.port) for endpoint in self.endpoints.advertised},
            config.broker_rack,
            epoch,
        )
        image.touch()
        self._maintenance = Maintenance(replicas, store, clock, lambda: settings.broker)
        self._maintenance.start()
        self._cleaner = Cleaner(replicas, store, clock, lambda: settings.broker)
        self._cleaner.start()

    async def _open_logs(self, store: LogStore, image: ClusterImage, settings: Settings) -> None:
        """Opens every log of a known topic. A log of an unknown one is left alone: nobody asked to delete it."""
        configs = {name: settings.topic_config(topic.settings) for name, topic in image.topics.items()}
        default = settings.topic_config({})
        await asyncio.get_running_loop().run_in_executor(None, store.open, lambda topic: configs.get(topic, default))
        for topic_partition, log in list(store.logs.items()):
            topic = image.topics.get(topic_partition.topic)
            if topic is None or topic.topic_id != log.topic_id or topic_partition.partition >= len(topic.partitions):
                logger.error("%s belongs to no topic that is known: its files are left alone", topic_partition)
                store.set_aside(topic_partition)

    async def _listen(self, router: Router) -> None:
        config = self._config
        limits = ConnectionLimits(
            frame_bytes_max=config.socket_request_max_bytes,
            output_bytes_max=config.tidelog_connection_output_max_bytes,
            parked_max=config.tidelog_connection_parked_max,
            idle_timeout_s=config.connections_max_idle_ms / 1000 if config.connections_max_idle_ms >= 0 else None,
        )
        admission = Admission(AdmissionLimits(config.max_connections, config.max_connections_per_ip))
        options = SocketOptions(
            backlog=config.socket_listen_backlog_size,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            send_buffer_bytes=config.socket_send_buffer_bytes,
        )
        for endpoint in config.endpoints.bound:
            listener = Listener(
                endpoint.name, router, clock=self._clock, limits=limits, admission=admission, options=options
            )
            await listener.start(endpoint.host, endpoint.port)
            self._listeners.append(listener)
        self.endpoints = config.endpoints.with_ports({each.name: each.port for each in self._listeners})

    def _executor(self, name: str, threads: int) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(threads, thread_name_prefix=f"tidelog-{name}")
        self._executors.append(executor)
        return executor

    async def stop(self) -> None:
        """Stops accepting, lets replies in progress go out, makes everything durable, and leaves."""
        stopping = asyncio.gather(*(listener.stop(DRAIN_S) for listener in self._listeners))
        await asyncio.sleep(0)  # the listeners take no more requests; those that wait need not wait any longer
        for partition in self._replicas or ():
            partition.wake_readers()
        await stopping
        if self._groups:
            self._groups.coordinator.close()
        if self._maintenance:
            await self._maintenance.stop()
        if self._cleaner:
            await self._cleaner.stop()
        loop = asyncio.get_running_loop()
        for executor in self._executors:
            await loop.run_in_executor(None, executor.shutdown)
        if self._store and self._replicas:
            await loop.run_in_executor(None, self._store.close, self._replicas.high_watermarks())
        elif self._store:
            self._store.abandon()
        if self._znodes:
            await self._znodes.close()


def _open_files_limit() -> int:
    """What the system allows this process; half of it is left to connections."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def refuse_what_is_not_there(config: BrokerConfig) -> None:
    """Settings that ask for what this version cannot do must not be ignored."""
    problems = [
        f"listeners: {endpoint} needs TLS or SASL, which are not there yet: use PLAINTEXT."
        for endpoint in config.endpoints.bound
        if endpoint.protocol is not SecurityProtocol.PLAINTEXT
    ]
    if not config.alone:
        problems.append("zookeeper.connect: clusters are not there yet: leave it out to run a single broker.")
    if problems:
        raise ConfigError(problems)
