"""What a broker does by the clock: flushing by age, retention, checkpoints, forgetting idle producers.

Each duty is one task in a loop of its own. Work over many partitions gives way to requests after every few.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.partition import Partition
    from tidelog.replication.replicas import Replicas
    from tidelog.storage.store import LogStore

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 50
FLUSH_CHECK_MS_MAX = 1_000
"""`log.flush.scheduler.interval.ms` is practically never by default; a topic's `flush.ms` should still be kept."""


class Maintenance:
    def __init__(self, replicas: Replicas, store: LogStore, clock: Clock, config: Callable[[], BrokerConfig]) -> None:
        """`config` gives the settings in force, which may change while the broker runs."""
        self._replicas = replicas
        self._store = store
        self._clock = clock
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        duties: tuple[tuple[str, Callable[[], int], Callable[[], Awaitable[None]]], ...] = (
            ("flush", lambda: self._config().log_flush_scheduler_interval_ms, self._flush_by_age),
            ("retention", lambda: self._config().log_retention_check_interval_ms, self._retain),
            ("checkpoints", lambda: self._config().log_flush_offset_checkpoint_interval_ms, self._checkpoint),
            ("producers", lambda: self._config().producer_id_expiration_check_interval_ms, self._expire_producers),
        )
        for name, interval_ms, duty in duties:
            self._tasks.append(asyncio.create_task(self._repeat(name, interval_ms, duty), name=f"maintenance-{name}"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, name: str, interval_ms: Callable[[], int], duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            pause_ms = min(interval_ms(), FLUSH_CHECK_MS_MAX) if name == "flush" else interval_ms()
            await asyncio.sleep(pause_ms / 1000)
            try:
                await duty()
            except Exception:
                logger.exception("%s failed; it is tried again in %d ms", name, pause_ms)

    async def _each(self, step: Callable[[Partition], object]) -> None:
        for count, partition in enumerate(list(self._replicas)):
            if count % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            step(partition)

    async def _flush_by_age(self) -> None:
        now_ms = self._clock.now_ms()

        def flush(partition: Partition) -> None:
            if partition.log.needs_flush(now_ms):
                self._replicas.commit.request(partition)

        await self._each(flush)

    async def _retain(self) -> None:
        now_ms = self._clock.now_ms()
        deleted = 0

        def retain(partition: Partition) -> None:
            nonlocal deleted
            deleted += partition.apply_retention(now_ms)

        await self._each(retain)
        if deleted:
            logger.info("retention deleted %d segments", deleted)
        self._store.run_maintenance(now_ms)

    async def _checkpoint(self) -> None:
        ticket = self._store.prepare_checkpoints(self._replicas.high_watermarks())
        await asyncio.get_running_loop().run_in_executor(None, ticket.write)

    async def _expire_producers(self) -> None:
        expiration_ms, now_ms = self._config().producer_id_expiration_ms, self._clock.now_ms()
        await self._each(lambda partition: partition.log.producers.expire(now_ms, expiration_ms))
