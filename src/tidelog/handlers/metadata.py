"""Metadata (3), v0-13. Tells which brokers there are and who leads which partition; creates topics when allowed.

v1 null means all topics · v4 auto-creation flag · v8 authorized operations · v9 flexible · v10 topic ids
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.controller.topic_rules import BROKER_DEFAULT, TopicSpec, check_name
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.controller.image import BrokerIds, ClusterImage, PartitionImage, TopicImage

logger = logging.getLogger(__name__)

_EMPTY_MEANS_ALL_UNTIL = 0
_NULL_NAME_SINCE = 12
_BY_ID_SINCE = 12


def handle(ctx: Context, req: MetadataRequest) -> Answer[MetadataResponse]:
    image = ctx.services.image
    if req.topics is None or (not req.topics and ctx.version <= _EMPTY_MEANS_ALL_UNTIL):
        asked = (ctx.listener, req.include_topic_authorized_operations, req.include_cluster_authorized_operations)
        return ctx.services.replies.get(
            image.version,
            ctx.version,
            asked,
            lambda: _reply(ctx, req, [_describe(topic, image) for topic in image.topics.values()]),
        )
    if ctx.version >= _BY_ID_SINCE:
        for topic in req.topics:
            if topic.topic_id not in {b"", ZERO_TOPIC_ID}:
                topic.name = None  # Java sends an empty one with the id
    missing = [topic for topic in req.topics if topic.name is not None and topic.name not in image.topics]
    if missing and req.allow_auto_topic_creation and ctx.services.config.auto_create_topics_enable:
        return _create_and_reply(ctx, req, req.topics)
    return _reply(ctx, req, [_look_up(ctx, topic) for topic in req.topics])


async def _create_and_reply(ctx: Context, req: MetadataRequest, topics: list[MetadataRequestTopic]) -> MetadataResponse:
    described = []
    for wanted in topics:
        name = wanted.name
        if name is not None and name not in ctx.services.image.topics:
            spec = TopicSpec(name, BROKER_DEFAULT, BROKER_DEFAULT, {}, {})
            try:
                await ctx.services.topics_on_demand.create(spec)
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    described.append(_failed(name, wanted.topic_id, error.code))
                    logger.info("topic %r was not created on demand: %s", name, error)
                    continue
        described.append(_look_up(ctx, wanted))
    return _reply(ctx, req, described)


def _look_up(ctx: Context, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    image = ctx.services.image
    try:
        if wanted.name is None:
            return _describe(image.topic_by_id(wanted.topic_id), image)
        check_name(wanted.name)
        return _describe(image.topic(wanted.name), image)
    except BrokerError as error:
        name = wanted.name if wanted.name is not None or ctx.version >= _NULL_NAME_SINCE else ""
        return _failed(name, wanted.topic_id, error.code)


def _failed(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id or ZERO_TOPIC_ID, partitions=[])


def _describe(topic: TopicImage, image: ClusterImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _describe_partition(index, part, image.live(TopicPartition(topic.name, index)))
            for index, part in enumerate(topic.partitions)
        ],
    )


def _describe_partition(index: int, partition: PartitionImage, live: BrokerIds) -> MetadataResponsePartition:
    led = partition.leader in live
    return MetadataResponsePartition(
        error_code=0 if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if led else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[replica for replica in partition.replicas if replica not in live],
    )


def _reply(ctx: Context, req: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    image = ctx.services.image
    if req.include_topic_authorized_operations:
        for topic in topics:
            if not topic.error_code:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack)
            for broker_id, endpoint, rack in image.endpoints(ctx.listener)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if req.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


HANDLER = Handler(MetadataRequest, MetadataResponse, versions=(0, 13), handle=handle)
