"""A group's member on Tidelog's own client, in either protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.client import BrokerError, ClientError, Consumer, RebalanceListener, TopicPartition

if TYPE_CHECKING:
    import threading

    from member import Options, Reports

POLL_S = 0.1
BATCH = 50


class Teller(RebalanceListener):
    """Commits what was read before it is given up, and reports."""

    def __init__(self, member: TidelogMember, reports: Reports) -> None:
        self._member = member
        self._reports = reports

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._reports.gained(partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._member.commit()
        self._member.forget(partitions)
        self._reports.gave_up(partitions)

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._member.forget(partitions)
        self._reports.gave_up(partitions, why="lost")


class TidelogMember:
    def __init__(self, options: Options, reports: Reports) -> None:
        self._reports = reports
        self._commits = options.commit == "sync"
        self._uncommitted: dict[TopicPartition, int] = {}
        listener = Teller(self, reports)
        if options.pattern is not None:
            interest: dict[str, Any] = {"pattern": f"{options.pattern}.*"}
        else:
            interest = {"topics": options.topics}
        self.consumer = Consumer(options.bootstrap, listener=listener, **interest, **settings(options))

    async def turn(self) -> None:
        for record in await self.consumer.poll(POLL_S, BATCH):
            self._reports.record(record.topic, record.partition, record.offset, record.value)
            self._uncommitted[TopicPartition(record.topic, record.partition)] = record.offset + 1
        await self.commit()

    async def commit(self) -> None:
        """What is refused while partitions move is tried again, until they are taken away."""
        if not self._commits or not self._uncommitted:
            return
        upto = dict(self._uncommitted)
        positions = [(*partition, offset) for partition, offset in upto.items()]
        try:
            await self.consumer.commit(upto)
        except (ClientError, BrokerError) as refusal:
            self._reports.refused(f"{type(refusal).__name__}: {refusal}", positions)
            return
        self._uncommitted.clear()
        self._reports.committed(positions)

    def forget(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            self._uncommitted.pop(partition, None)


def settings(options: Options) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "group_id": options.group,
        "group_instance_id": options.instance,
        "group_protocol": options.protocol,
        "enable_auto_commit": options.commit == "auto",
        "auto_commit_interval_ms": 200,
        "auto_offset_reset": options.reset,
        "session_timeout_ms": options.session_ms,
        "heartbeat_interval_ms": options.heartbeat_ms,
        "metadata_max_age_ms": options.metadata_ms,
        "fetch_max_wait_ms": 100,
    }
    if options.assignor is not None:
        key = "partition_assignment_strategy" if options.protocol == "classic" else "group_remote_assignor"
        chosen[key] = options.assignor
    return chosen


def run(options: Options, reports: Reports, stop: threading.Event) -> None:
    asyncio.run(read_until(options, reports, stop))


async def read_until(options: Options, reports: Reports, stop: threading.Event) -> None:
    member = TidelogMember(options, reports)
    async with member.consumer:
        while not stop.is_set():
            await member.turn()
