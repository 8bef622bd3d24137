"""Creates and grows topics, in a reign.

The topic's own node is the decision: what a crash leaves undone after it, the next controller does when it loads.
"""

from __future__ import annotations

import logging
from itertools import count as counting
from typing import TYPE_CHECKING

from tidelog.config.alter import validate_topic_overrides
from tidelog.controller.image import TopicImage
from tidelog.controller.ledger import assignment_node
from tidelog.controller.topic_rules import check_free, check_name, plan_assignment, plan_growth
from tidelog.controller.transitions import PartitionChange, fresh_partition
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition, new_topic_id
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import MultiError, NodeExists
from tidelog.znodes.store import Create, SetData

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidelog.controller.image import PartitionImage
    from tidelog.controller.ledger import Unit
    from tidelog.controller.placement import Assignment
    from tidelog.controller.reign import Reign
    from tidelog.controller.topic_rules import TopicSpec

logger = logging.getLogger(__name__)


async def create(reign: Reign, spec: TopicSpec, doomed: Collection[str], *, validate_only: bool) -> TopicImage:
    """`doomed` are the names of topics whose deletion is still going on."""
    check_name(spec.name)
    if spec.name in doomed:
        raise BrokerError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"topic {spec.name!r} is still being deleted: try again when all brokers that hold it have done so",
        )
    check_free(spec.name, reign.state)
    validate_topic_overrides(spec.settings)
    topic = TopicImage(spec.name, new_topic_id(), [], dict(spec.settings))
    broker = reign.settings.broker
    assignment = plan_assignment(
        spec,
        reign.state,
        default_partitions=broker.num_partitions,
        default_replication_factor=broker.default_replication_factor,
        start=len(reign.state.topics),
        observer_racks=reign.config(topic).tidelog_observer_racks,
    )
    fresh = _fresh(reign, topic, assignment)
    if validate_only:
        topic.partitions = fresh
        return topic
    changes = [
        PartitionChange(TopicPartition(topic.name, number), None, partition) for number, partition in enumerate(fresh)
    ]
    await _found(reign, topic, fresh, changes)
    reign.settings.learned(topic.name, topic.settings)
    reign.state.put_topic(topic)
    reign.take_up(changes)
    logger.info("created topic %s with %d partitions", topic.name, len(fresh))
    return topic


async def grow(
    reign: Reign, name: str, count: int, explicit: Sequence[Sequence[int]] | None, *, validate_only: bool
) -> None:
    topic = reign.state.topic(name)
    racks = reign.config(topic).tidelog_observer_racks
    added = plan_growth(topic, count, explicit, reign.state, observer_racks=racks)
    if any(partition.reassigning for partition in topic.partitions):
        raise BrokerError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of topic {name!r} are being moved: add others afterwards"
        )
    if validate_only:
        return
    fresh = _fresh(reign, topic, added)
    changes = [
        PartitionChange(TopicPartition(name, number), None, partition)
        for number, partition in zip(counting(len(topic.partitions)), fresh)
    ]
    await _write(reign, [SetData(paths.topic(name), assignment_node(topic, [*topic.partitions, *fresh]))], changes)
    reign.take_up(changes)
    logger.info("topic %s now has %d partitions", name, count)


async def _found(
    reign: Reign, topic: TopicImage, fresh: Sequence[PartitionImage], changes: Sequence[PartitionChange]
) -> None:
    """Writes everything of a new topic."""
    settings = nodes.encode_config(topic.settings)
    rest: list[Create | SetData] = [
        Create(paths.topic(topic.name), assignment_node(topic, fresh)),
        Create(paths.partitions(topic.name)),
    ]
    if topic.settings:
        change = nodes.encode_config_change(f"topics/{topic.name}")
        rest.append(Create(paths.CONFIG_CHANGE_PREFIX, change, sequential=True))
    try:
        await _write(reign, [Create(paths.topic_config(topic.name), settings), *rest], changes)
    except MultiError as error:
        if not isinstance(error.cause, NodeExists):
            raise
        if error.cause.path != paths.topic_config(topic.name):
            raise BrokerError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"the coordination store has a node {error.cause.path} that belongs to no topic: remove it first",
            ) from None
        # Settings that somebody left behind; those of the new topic take their place.
        await _write(reign, [SetData(paths.topic_config(topic.name), settings), *rest], changes)


def _fresh(reign: Reign, topic: TopicImage, assignment: Assignment) -> list[PartitionImage]:
    live = reign.state.brokers.keys()
    staying = live - reign.shutting_down
    fresh = []
    for replicas in assignment:
        observers = reign.observers_of(topic, replicas)
        able = any(replica in staying and replica not in observers for replica in replicas)
        fresh.append(fresh_partition(replicas, staying if able else live, observers))
    return fresh


async def _write(reign: Reign, head: Sequence[Create | SetData], changes: Sequence[PartitionChange]) -> None:
    """The decision first, in a transaction of its own if it does not fit into one with the rest."""
    births: list[Unit] = [reign.ledger.birth(change.topic_partition, change.partition) for change in changes]
    await reign.ledger.write([head, *births])
    reign.check()
