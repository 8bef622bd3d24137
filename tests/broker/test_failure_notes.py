"""A broker whose log fails says so, and leads it no longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.broker.app import Broker
from tidelog.broker.failure_notes import FailureNotes
from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.controller.topic_rules import TopicSpec
from tidelog.types import TopicPartition
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import open_embedded

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.replication.partition import Partition

PATIENCE_S = 30.0


def test_failures_before_a_note_is_written_share_it() -> None:
    async def main() -> None:
        znodes = await open_embedded(None, SystemClock())
        written = asyncio.Event()
        await znodes.create(paths.LOG_DIR_EVENTS, make_parents=True)
        await znodes.children(paths.LOG_DIR_EVENTS, watch=lambda _event: written.set())
        notes = FailureNotes(znodes, 7)
        notes.failed(TopicPartition("t", 0))
        notes.failed(TopicPartition("t", 1))
        await asyncio.wait_for(written.wait(), PATIENCE_S)
        (name,) = await znodes.children(paths.LOG_DIR_EVENTS)
        data, _stat = await znodes.get(f"{paths.LOG_DIR_EVENTS}/{name}")
        assert nodes.decode_log_dir_event("", data) == 7
        await notes.stop()
        notes.failed(TopicPartition("t", 2))
        await znodes.close()

    asyncio.run(main())


def test_a_broker_stops_leading_what_its_disk_has_lost(tmp_path: Path) -> None:
    config = BrokerConfig.parse(
        {"broker.id": "1", "log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    )

    async def main() -> None:
        async with Broker(config) as broker:
            node = broker._node
            assert node is not None
            lost = asyncio.Event()

            class Watcher:
                def leads(self, partition: Partition) -> None:
                    pass

                def loses(self, partition: Partition) -> None:
                    assert partition.leader == -1
                    lost.set()

            await node.controller.create(TopicSpec("t", 1, 1, {}, {}))
            node.replicas.watchers["t"] = Watcher()
            partition = node.replicas.get("t", 0)
            assert partition.leads
            partition.log._health.fail("the disk is gone")
            await asyncio.wait_for(lost.wait(), PATIENCE_S)
            await node.controller.idle()
            assert not [each for each in node.replicas if each.leads]
            state = node.controller.state
            assert state.topics["t"].partitions[0].leader == -1
            assert state.offline == {TopicPartition("t", 0): frozenset({1})}
            assert node.image.offline == state.offline

    asyncio.run(main())
