"""AlterPartitionReassignments (45), v0-1. Begins to move partitions to other brokers, or cancels moves (KIP-455).

v1 may forbid to change the number of replicas
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.controller_asking import controller_of
from tidelog.handlers.handler import Handler
from tidelog.types import TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.handlers.handler import Context


async def handle(ctx: Context, req: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    asked = {
        (topic_at, at): TopicPartition(topic.name, partition.partition_index)
        for topic_at, topic in enumerate(req.topics)
        for at, partition in enumerate(topic.partitions)
    }
    times_named = Counter(asked.values())
    wanted = {
        each: req.topics[topic_at].partitions[at].replicas
        for (topic_at, at), each in asked.items()
        if times_named[each] == 1
    }
    refused = await controller_of(ctx).alter_reassignments(
        wanted, may_change_factor=req.allow_replication_factor_change
    )
    for each, times in times_named.items():
        if times > 1:
            refused[each] = BrokerError(ErrorCode.INVALID_REQUEST, f"{each} is named more than once")
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=req.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _response(
                        partition.partition_index, refused.get(TopicPartition(topic.name, partition.partition_index))
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in req.topics
        ],
    )


def _response(number: int, refusal: BrokerError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=number,
        error_code=refusal.code if refusal else 0,
        error_message=refusal.message if refusal else None,
    )


def refuse(
    req: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=req.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[],
    )


HANDLER: Handler[AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse] = Handler(
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    versions=(0, 1),
    handle=handle,
    refuse=refuse,
)
