"""ListPartitionReassignments (46), v0. Lists the moves of partitions that are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.controller_asking import controller_of
from tidelog.handlers.handler import Handler
from tidelog.types import TopicPartition
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from tidelog.errors import ErrorCode
    from tidelog.handlers.handler import Context


async def handle(ctx: Context, req: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    wanted = None
    if req.topics is not None:
        wanted = [TopicPartition(topic.name, number) for topic in req.topics for number in topic.partition_indexes]
    topics: dict[str, OngoingTopicReassignment] = {}
    for (name, number), partition in (await controller_of(ctx).list_reassignments(wanted)).items():
        topic = topics.setdefault(name, OngoingTopicReassignment(name=name, partitions=[]))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=0, error_message=None, topics=list(topics.values())
    )


def refuse(
    _req: ListPartitionReassignmentsRequest, code: ErrorCode, message: str
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=code, error_message=message, topics=[])


HANDLER: Handler[ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse] = Handler(
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    versions=(0, 0),
    handle=handle,
    refuse=refuse,
)
