"""Reads the whole cluster from the znode tree, in bulk: a new controller with ten thousand partitions is ready at once.

What cannot be read because a node holds something else is logged and left out: one bad node must not keep a cluster
from having a controller.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.controller.image import BrokerImage, Endpoint, PartitionImage, TopicImage
from tidelog.controller.transitions import fresh_partition
from tidelog.types import LeaderEpoch, TopicPartition
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import NodeFormatError, NoNode

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidelog.znodes.store import Stat, Watch, ZnodeStore

logger = logging.getLogger(__name__)


async def load_brokers(znodes: ZnodeStore, watch: Watch) -> dict[int, BrokerImage]:
    """The live brokers by id. The watch is told when one comes or goes."""
    ids = [name for name in await znodes.children(paths.BROKER_IDS, watch=watch) if name.isdecimal()]
    found = await znodes.get_many([paths.broker(int(name)) for name in ids])
    brokers = {}
    for broker_id, node in sorted(zip(map(int, ids), found, strict=True)):
        if node is None:
            continue  # gone between the two readings: the watch will tell
        data, stat = node
        try:
            brokers[broker_id] = _broker(broker_id, data, stat)
        except NodeFormatError as error:
            logger.error("broker %d is taken for absent: %s", broker_id, error)
    return brokers


def _broker(broker_id: int, data: bytes, stat: Stat) -> BrokerImage:
    registration = nodes.BrokerRegistration.decode(paths.broker(broker_id), data)
    endpoints = {each.name: Endpoint(each.host, each.port, each.protocol.number) for each in registration.endpoints}
    return BrokerImage(broker_id, endpoints, registration.rack, stat.czxid)


@dataclass(slots=True)
class LoadedTopics:
    topics: list[TopicImage] = field(default_factory=list)
    changed_at: dict[TopicPartition, int] = field(default_factory=dict)
    """The transaction that last changed a partition's state."""
    unborn: list[TopicPartition] = field(default_factory=list)
    """Partitions that their topic lists, but whose state a crash left unwritten."""


async def load_topics(znodes: ZnodeStore, live: Collection[int]) -> LoadedTopics:
    names = await znodes.children(paths.TOPICS)
    assignments = await znodes.get_many([paths.topic(name) for name in names])
    settings = await znodes.get_many([paths.topic_config(name) for name in names])
    loaded = LoadedTopics()
    wanted: list[tuple[TopicImage, nodes.TopicAssignment]] = []
    for name, assignment, own in zip(names, assignments, settings, strict=True):
        if assignment is None:
            continue
        try:
            node = nodes.TopicAssignment.decode(paths.topic(name), assignment[0])
        except NodeFormatError as error:
            logger.error("topic %s is left alone: %s", name, error)
            continue
        topic = TopicImage(name, node.topic_id, [], _settings(name, own))
        wanted.append((topic, node))
        loaded.topics.append(topic)
    states = iter(
        await znodes.get_many(
            [
                paths.partition_state(topic.name, number)
                for topic, node in wanted
                for number in range(len(node.partitions))
            ]
        )
    )
    for topic, node in wanted:
        for number in range(len(node.partitions)):
            _add_partition(loaded, topic, node, TopicPartition(topic.name, number), next(states), live)
    return loaded


def _settings(name: str, node: tuple[bytes, Stat] | None) -> dict[str, str]:
    if node is None:
        return {}
    try:
        return nodes.decode_config(paths.topic_config(name), node[0])
    except NodeFormatError as error:
        logger.error("the settings of topic %s are left out: %s", name, error)
        return {}


def _add_partition(
    loaded: LoadedTopics,
    topic: TopicImage,
    node: nodes.TopicAssignment,
    topic_partition: TopicPartition,
    found: tuple[bytes, Stat] | None,
    live: Collection[int],
) -> None:
    number = topic_partition.partition
    replicas = tuple(node.partitions.get(number, ()))
    if found is None:
        topic.partitions.append(fresh_partition(replicas, live))
        loaded.unborn.append(topic_partition)
        return
    data, stat = found
    path = paths.partition_state(topic.name, number)
    try:
        state = nodes.PartitionState.decode(path, data)
    except NodeFormatError as error:
        logger.error("%s has no leader until its node is mended: %s", topic_partition, error)
        state = nodes.PartitionState(nodes.NO_LEADER, LeaderEpoch(0), (), 0)
    loaded.changed_at[topic_partition] = stat.mzxid
    topic.partitions.append(
        PartitionImage(
            replicas,
            tuple(state.isr),
            state.leader,
            state.leader_epoch,
            stat.version,
            adding=tuple(node.adding.get(number, ())),
            removing=tuple(node.removing.get(number, ())),
            recovering=state.recovering,
        )
    )


async def existing(znodes: ZnodeStore, wanted: Sequence[str]) -> list[str]:
    """Those of the nodes that are there."""
    return [path for path, node in zip(wanted, await znodes.get_many(wanted), strict=True) if node is not None]


async def children_if_any(znodes: ZnodeStore, path: str, watch: Watch) -> list[str]:
    """The children of a node that may not be there."""
    try:
        return await znodes.children(path, watch=watch)
    except NoNode:
        return []
