"""One broker, wired: opens its store and logs, serves its listeners, and stops without losing anything.

Starting: coordination first, since it says which topics there are; then the logs; then the doors; then it makes itself
known. Stopping goes the other way, so that nothing is accepted that could not be kept.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidelog.broker.cleaner import Cleaner
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.node import Node
from tidelog.clock import SystemClock
from tidelog.config.definition import ConfigError
from tidelog.config.listeners import SecurityProtocol
from tidelog.net.admission import Admission, AdmissionLimits
from tidelog.net.limits import ConnectionLimits
from tidelog.net.listener import Listener, SocketOptions
from tidelog.storage.fs import RealFilesystem
from tidelog.znodes.embedded import open_embedded
from tidelog.znodes.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from tidelog.broker.router import Router
    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import ListenerSet
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

COORDINATION_FILE = "coordination.sqlite"
DRAIN_S = 5.0


class Broker:
    """`async with Broker(config)` runs one."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._executors: list[ThreadPoolExecutor] = []
        self._node: Node | None = None
        self._joined = False
        self._znodes: ZnodeStore | None = None
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
        node = Node(config, clock, RealFilesystem(), self._executor)
        node.store.lock()
        self._node = node
        self._znodes = await _coordination_of(config, clock)
        router = await node.open(self._znodes)
        await self._listen(router)
        await node.join(self.endpoints)
        self._joined = True
        if config.alone:
            _name_strays(node)
        self._maintenance = Maintenance(node.replicas, node.store, clock, lambda: node.settings.broker)
        self._maintenance.start()
        self._cleaner = Cleaner(node.replicas, node.store, clock, lambda: node.settings.broker)
        self._cleaner.start()

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

    @property
    def broker_id(self) -> int:
        """Known once the broker has started, if it had to ask for one."""
        return self._node.broker_id if self._node else self._config.broker_id

    def _executor(self, name: str, threads: int) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(threads, thread_name_prefix=f"tidelog-{name}")
        self._executors.append(executor)
        return executor

    async def stop(self) -> None:
        """Stops accepting, lets replies in progress go out, makes everything durable, and leaves."""
        node = self._node
        if node and self._joined:
            await node.move_leaders_away()
        stopping = asyncio.gather(*(listener.stop(DRAIN_S) for listener in self._listeners))
        await asyncio.sleep(0)  # the listeners take no more requests; those that wait need not wait any longer
        if node and self._joined:
            node.release_clients()
        await stopping
        if self._maintenance:
            await self._maintenance.stop()
        if self._cleaner:
            await self._cleaner.stop()
        if node:
            await node.leave()
        loop = asyncio.get_running_loop()
        for executor in self._executors:
            await loop.run_in_executor(None, executor.shutdown)
        if node:
            await loop.run_in_executor(None, node.close)
        if self._znodes:
            await self._znodes.close()


async def _coordination_of(config: BrokerConfig, clock: Clock) -> ZnodeStore:
    if config.alone:
        return await open_embedded(Path(config.log_dirs[0]) / COORDINATION_FILE, clock)
    user, _, password = (config.tidelog_zookeeper_digest or "").partition(":")
    return await open_zookeeper(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        digest=(user, password) if user else None,
        protect=config.zookeeper_set_acl,
        requests_in_flight_max=config.zookeeper_max_in_flight_requests,
    )


def _name_strays(node: Node) -> None:
    """A broker that is alone has been told of all it hosts. The log of an unknown topic is left alone: nobody asked
    to delete it."""
    hosted = {partition.topic_partition for partition in node.replicas}
    for topic_partition in [each for each in node.store.logs if each not in hosted]:
        logger.error("%s belongs to no topic that is known: its files are left alone", topic_partition)
        node.store.set_aside(topic_partition)


def refuse_what_is_not_there(config: BrokerConfig) -> None:
    """Settings that ask for what this version cannot do must not be ignored."""
    problems = [
        f"listeners: {endpoint} needs TLS or SASL, which are not there yet: use PLAINTEXT."
        for endpoint in config.endpoints.bound
        if endpoint.protocol is not SecurityProtocol.PLAINTEXT
    ]
    if problems:
        raise ConfigError(problems)
