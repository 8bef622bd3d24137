"""Creates, grows and deletes topics.

Every change is decided by `topic_rules`, written to the znode store, and only then taken up by the image and by those
who host the partitions. The topic's own node is the decision: what a crash leaves undone after it is done at the next
start (`load`). Changes go one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tidelog.config.alter import validate_topic_overrides
from tidelog.controller.image import PartitionImage, TopicImage
from tidelog.controller.topic_rules import check_free, check_name, plan_assignment, plan_growth
from tidelog.types import BrokerId, LeaderEpoch, TopicPartition, new_topic_id
from tidelog.znodes import nodes, paths
from tidelog.znodes.store import Create, Delete, Operation, SetData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.controller.image import ClusterImage
    from tidelog.controller.placement import Assignment
    from tidelog.controller.settings import Settings
    from tidelog.controller.topic_rules import TopicSpec
    from tidelog.types import TopicId
    from tidelog.znodes.store import ZnodeStore

logger = logging.getLogger(__name__)

OPERATIONS_PER_MULTI = 300
"""One by one, znode writes are what makes large topics slow; all in one could exceed what a server takes."""


class Hosting(Protocol):
    """Who holds partitions on this broker."""

    def host(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        leader: int,
        leader_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None: ...

    def drop(self, topic_partition: TopicPartition) -> None: ...


class Topics:
    def __init__(self, znodes: ZnodeStore, image: ClusterImage, settings: Settings, controller_epoch: int) -> None:
        self._znodes = znodes
        self._image = image
        self._settings = settings
        self._controller_epoch = controller_epoch
        self._hosting: Hosting | None = None
        self.on_change: Callable[[tuple[str, ...]], None] = lambda _deleted: None
        """Called after topics or partitions have come or gone, with the names of deleted topics."""
        self._changes = asyncio.Lock()  # one change at a time: each is planned on what the one before left

    async def load(self) -> None:
        """Reads all topics into the image and finishes what an earlier life of the broker left undone."""
        doomed = set(await self._znodes.children(paths.DELETE_TOPICS))
        for name in await self._znodes.children(paths.TOPICS):
            if name in doomed:
                continue
            self._image.put_topic(await self._load_topic(name))
        for name in doomed:
            logger.info("finishing the deletion of topic %s", name)
            await self._erase(name)

    async def _load_topic(self, name: str) -> TopicImage:
        path, settings_path = paths.topic(name), paths.topic_config(name)
        stored = nodes.TopicAssignment.decode(path, (await self._znodes.get(path))[0])
        settings: dict[str, str] = {}
        if await self._znodes.exists(settings_path):
            settings = nodes.decode_config(settings_path, (await self._znodes.get(settings_path))[0])
        topic = TopicImage(name, stored.topic_id, [], settings)
        state_paths = [paths.partition_state(name, partition) for partition in range(len(stored.partitions))]
        for partition, found in enumerate(await self._znodes.get_many(state_paths)):
            if found is None:
                break
            state = nodes.PartitionState.decode(state_paths[partition], found[0])
            topic.partitions.append(
                PartitionImage(
                    tuple(stored.partitions[partition]),
                    tuple(state.isr),
                    state.leader,
                    state.leader_epoch,
                    found[1].version,
                )
            )
        missing = [tuple(stored.partitions[at]) for at in range(len(topic.partitions), len(stored.partitions))]
        if missing:
            logger.info("finishing the creation of %d partitions of topic %s", len(missing), name)
            await self._add_partitions(topic, tuple(missing))
        return topic

    def host_all(self, hosting: Hosting) -> None:
        """Has every partition of the image taken up; later ones follow as they are made."""
        self._hosting = hosting
        for topic in self._image.topics.values():
            self._host(topic, 0)

    async def create(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicImage:
        async with self._changes:
            check_name(spec.name)
            check_free(spec.name, self._image)
            validate_topic_overrides(spec.settings)
            broker = self._settings.broker
            assignment = plan_assignment(
                spec,
                self._image,
                default_partitions=broker.num_partitions,
                default_replication_factor=broker.default_replication_factor,
                start=len(self._image.topics),
            )
            topic = TopicImage(spec.name, new_topic_id(), [], dict(spec.settings))
            if validate_only:
                topic.partitions = _fresh_partitions(assignment)
                return topic
            await self._write(
                [
                    Create(paths.topic_config(topic.name), nodes.encode_config(topic.settings)),
                    Create(paths.topic(topic.name), _assignment_node(topic.topic_id, assignment)),
                    Create(paths.partitions(topic.name), b""),
                ]
            )
            await self._add_partitions(topic, assignment)
            self._image.put_topic(topic)
            self._host(topic, 0)
            self.on_change(())
            logger.info("created topic %s with %d partitions", topic.name, len(topic.partitions))
            return topic

    async def grow(
        self, name: str, count: int, explicit: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        async with self._changes:
            topic = self._image.topic(name)
            added = plan_growth(topic, count, explicit, self._image)
            if validate_only:
                return
            have = len(topic.partitions)
            whole = tuple(partition.replicas for partition in topic.partitions) + added
            await self._write([SetData(paths.topic(name), _assignment_node(topic.topic_id, whole))])
            await self._add_partitions(topic, added)
            self._image.touch()
            self._host(topic, have)
            self.on_change(())
            logger.info("topic %s now has %d partitions", name, count)

    async def delete(self, name: str) -> None:
        async with self._changes:
            topic = self._image.topic(name)
            await self._write([Create(paths.delete_topic(name), b"")])
            self._image.drop_topic(name)
            if self._hosting:
                for partition in range(len(topic.partitions)):
                    self._hosting.drop(TopicPartition(name, partition))
            self.on_change((name,))
            await self._erase(name)
            logger.info("deleted topic %s", name)

    def _host(self, topic: TopicImage, first: int) -> None:
        if self._hosting is None:
            return
        config = self._settings.topic_config(topic.settings)
        for index in range(first, len(topic.partitions)):
            partition = topic.partitions[index]
            self._hosting.host(
                TopicPartition(topic.name, index),
                topic.topic_id,
                config,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
            )

    async def _add_partitions(self, topic: TopicImage, added: Assignment) -> None:
        """Writes the first state of partitions whose replicas the topic's node already lists."""
        operations: list[Operation] = []
        fresh = _fresh_partitions(added)
        for index, partition in enumerate(fresh, len(topic.partitions)):
            state = nodes.PartitionState(
                BrokerId(partition.leader), LeaderEpoch(partition.leader_epoch), partition.isr, self._controller_epoch
            )
            operations.append(Create(paths.partition(topic.name, index), b""))
            operations.append(Create(paths.partition_state(topic.name, index), state.encode()))
        await self._write(operations)
        topic.partitions.extend(fresh)

    async def _erase(self, name: str) -> None:
        """Removes every node of a topic, deepest first, and last the one that says it must go."""
        operations: list[Operation] = []
        await self._plan_removal(paths.topic(name), operations)
        if await self._znodes.exists(paths.topic_config(name)):
            operations.append(Delete(paths.topic_config(name)))
        operations.append(Delete(paths.delete_topic(name)))
        await self._write(operations)

    async def _plan_removal(self, path: str, operations: list[Operation]) -> None:
        if not await self._znodes.exists(path):
            return
        for child in await self._znodes.children(path):
            await self._plan_removal(f"{path}/{child}", operations)
        operations.append(Delete(path))

    async def _write(self, operations: Iterable[Operation]) -> None:
        rest = iter(operations)
        while chunk := list(islice(rest, OPERATIONS_PER_MULTI)):
            await self._znodes.multi(chunk)


def _assignment_node(topic_id: TopicId, assignment: Assignment) -> bytes:
    return nodes.TopicAssignment(topic_id, dict(enumerate(assignment))).encode()


def _fresh_partitions(assignment: Assignment) -> list[PartitionImage]:
    return [PartitionImage(replicas, replicas, replicas[0], 0) for replicas in assignment]
