"""UpdateMetadata (6), v7-8. The controller tells this broker what every broker should know of the cluster.

v7 topic ids · v8 full requests: what they do not name is not there
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.image import BrokerImage, Endpoint, PartitionImage, TopicImage
from tidelog.handlers.from_controller import FULL, check_controller, learn_settings
from tidelog.handlers.handler import Context, Handler
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from tidelog.controller.image import ClusterImage
    from tidelog.wire.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataTopicState,
    )

LEADER_DURING_DELETE = -2
"""In place of a leader: nobody shall see the partition any more."""

_NOT_TOLD_YET = PartitionImage((), (), -1, -1, -1)


async def handle(ctx: Context, req: UpdateMetadataRequest) -> UpdateMetadataResponse:
    check_controller(ctx, req)
    there = ((topic.topic_name, topic.topic_id) for topic in req.topic_states if not _is_gone(topic))
    await learn_settings(ctx, req, there)
    image = ctx.services.image
    image.controller_id = req.controller_id
    _take_brokers(image, req.live_brokers)
    deleted = _forget_unnamed(image, req) if req.type == FULL else []
    for topic in req.topic_states:
        if _is_gone(topic):
            deleted += _forget(image, topic.topic_name, topic.topic_id)
        else:
            deleted += _take_topic(ctx, topic)
    image.touch()
    ctx.services.replicas.refresh_observers()
    ctx.services.metadata_changed(tuple(deleted))
    if req.type == FULL:
        ctx.services.told.set()
    return UpdateMetadataResponse(error_code=0)


def _take_brokers(image: ClusterImage, live: list[UpdateMetadataBroker]) -> None:
    image.brokers = {
        broker.id: BrokerImage(
            broker.id,
            {
                endpoint.listener: Endpoint(endpoint.host, endpoint.port, endpoint.security_protocol)
                for endpoint in broker.endpoints
            },
            broker.rack,
            image.brokers[broker.id].epoch if broker.id in image.brokers else -1,
        )
        for broker in live
    }


def _is_gone(topic: UpdateMetadataTopicState) -> bool:
    return any(state.leader == LEADER_DURING_DELETE for state in topic.partition_states)


def _forget_unnamed(image: ClusterImage, req: UpdateMetadataRequest) -> list[str]:
    named = {topic.topic_name for topic in req.topic_states}
    gone = [name for name in image.topics if name not in named]
    for name in gone:
        image.drop_topic(name)
    return gone


def _forget(image: ClusterImage, name: str, topic_id: bytes) -> list[str]:
    """A topic of the same name that was created since stays."""
    known = image.topics.get(name)
    if known is None or known.topic_id != topic_id:
        return []
    image.drop_topic(name)
    return [name]


def _take_topic(ctx: Context, told: UpdateMetadataTopicState) -> list[str]:
    """Gives the topic's name if one of this name was known and is another one."""
    image, name = ctx.services.image, told.topic_name
    known = image.topics.get(name)
    replaced = known is not None and known.topic_id != told.topic_id
    if known is None or replaced:
        if replaced:
            image.drop_topic(name)
        known = TopicImage(name, TopicId(told.topic_id), [], dict(ctx.services.settings.of_topic(name)))
        image.put_topic(known)
    partitions = known.partitions
    for state in told.partition_states:
        while len(partitions) <= state.partition_index:
            partitions.append(_NOT_TOLD_YET)
        partitions[state.partition_index] = _partition(state)
        _take_offline(image, TopicPartition(name, state.partition_index), state)
    return [name] if replaced else []


def _take_offline(image: ClusterImage, place: TopicPartition, state: UpdateMetadataPartitionState) -> None:
    """Replicas that are offline on brokers that live."""
    failed = image.brokers.keys() & state.offline_replicas
    if failed:
        image.offline[place] = frozenset(failed)
    elif image.offline:
        image.offline.pop(place, None)


def _partition(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(tuple(state.replicas), tuple(state.isr), state.leader, state.leader_epoch, state.zk_version)


HANDLER: Handler[UpdateMetadataRequest, UpdateMetadataResponse] = Handler(
    UpdateMetadataRequest, UpdateMetadataResponse, versions=(7, 8), handle=handle
)
