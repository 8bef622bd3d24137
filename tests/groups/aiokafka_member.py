"""A group's member on aiokafka.

The library rebalances in a task of its own, while records are being handled. A lock keeps it from giving partitions
away before what was read from them is committed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable

    from member import Options, Partition, Position, Reports

POLL_MS = 100
BATCH = 50
ASSIGNORS = {
    assignor.name: assignor
    for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
}


class Aiokafka(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, options: Options, reports: Reports) -> None:
        self._reports = reports
        self._commits = options.commit == "sync"
        self._uncommitted: dict[Partition, int] = {}
        self._busy = asyncio.Lock()
        self._consumer = AIOKafkaConsumer(**settings(options))
        self._consumer.subscribe(topics=options.topics, pattern=options.pattern, listener=self)

    async def start(self) -> None:
        await self._consumer.start()

    async def turn(self) -> None:
        # It hands out nothing while it rebalances, so that what it hands out is still ours when we take the lock.
        batches = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        async with self._busy:
            for records in batches.values():
                for record in records:
                    self._reports.record(record.topic, record.partition, record.offset, record.value)
                    self._uncommitted[record.topic, record.partition] = record.offset + 1
            await self._commit()

    async def close(self) -> None:
        await self._consumer.stop()

    async def _commit(self) -> None:
        if not self._commits or not self._uncommitted:
            return
        upto: list[Position] = [(*place, offset) for place, offset in self._uncommitted.items()]
        try:
            await self._consumer.commit({TopicPartition(*at): offset for *at, offset in upto})
        except KafkaError as refusal:
            self._reports.refused(type(refusal).__name__, upto)
            return
        self._uncommitted.clear()
        self._reports.committed(upto)

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._reports.gained(map(place_of, assigned))

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        async with self._busy:
            for partition in revoked:
                self._uncommitted.pop(place_of(partition), None)
            self._reports.gave_up(map(place_of, revoked))


def settings(options: Options) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "group_instance_id": options.instance,
        "enable_auto_commit": options.commit == "auto",
        "auto_commit_interval_ms": 200,
        "auto_offset_reset": options.reset,
        "session_timeout_ms": options.session_ms,
        "heartbeat_interval_ms": options.heartbeat_ms,
        "metadata_max_age_ms": options.metadata_ms,
        "fetch_max_wait_ms": 100,
    }
    if options.assignor is not None:
        chosen["partition_assignment_strategy"] = [ASSIGNORS[options.assignor]]
    return chosen


def place_of(partition: Any) -> Partition:
    return partition.topic, partition.partition


def run(options: Options, reports: Reports, stop: threading.Event) -> None:
    asyncio.run(read_until(options, reports, stop))


async def read_until(options: Options, reports: Reports, stop: threading.Event) -> None:
    member = Aiokafka(options, reports)
    await member.start()
    while not stop.is_set():
        await member.turn()
    await member.close()
