"""DescribeTopicPartitions (75), v0. Metadata of topics in pages: at most so many partitions, then a cursor to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.authorized_operations import TOPIC_OPERATIONS
from tidelog.handlers.handler import Context, Handler
from tidelog.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.wire.messages.describe_topic_partitions import (
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.controller.image import ClusterImage, TopicImage


def handle(ctx: Context, req: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    image = ctx.services.image
    names = sorted({topic.name for topic in req.topics} if req.topics else image.topics)
    first = 0
    if req.cursor is not None:
        if req.cursor.partition_index < 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a cursor's partition cannot be negative")
        names = [name for name in names if name >= req.cursor.topic_name]
        if names and names[0] == req.cursor.topic_name:
            first = req.cursor.partition_index
    left = min(max(req.response_partition_limit, 1), ctx.services.config.max_request_partition_size_limit)
    reply = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    for name in names:
        if left <= 0:
            reply.next_cursor = CursorResponse(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            reply.topics.append(_missing(name))
            continue
        last = min(first + left, len(topic.partitions))
        reply.topics.append(_describe(topic, range(first, last), image))
        left -= last - first
        if last < len(topic.partitions):
            reply.next_cursor = CursorResponse(topic_name=name, partition_index=last)
            break
        first = 0
    return reply


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_id=ZERO_TOPIC_ID, partitions=[]
    )


def _describe(topic: TopicImage, indexes: range, image: ClusterImage) -> DescribeTopicPartitionsResponseTopic:
    parts = []
    for index in indexes:
        partition = topic.partitions[index]
        live = image.live(TopicPartition(topic.name, index))
        led = partition.leader in live
        parts.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if led else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader if led else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                # Java's describeTopics fails on null here.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[replica for replica in partition.replicas if replica not in live],
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=parts,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _refuse(_req: DescribeTopicPartitionsRequest, code: ErrorCode, _message: str) -> DescribeTopicPartitionsResponse:
    """There is no place for an error at the top: it goes into one nameless topic, as Kafka does."""
    nameless = DescribeTopicPartitionsResponseTopic(error_code=code, name=None, topic_id=ZERO_TOPIC_ID, partitions=[])
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[nameless])


HANDLER = Handler(
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    versions=(0, 0),
    handle=handle,
    refuse=_refuse,
)
