"""DeleteRecords (21), v0-2. Moves the start of partitions up, so that older records are gone. v2 flexible."""

from __future__ import annotations

from tidelog.errors import BrokerError
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(ctx: Context, req: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(ctx, topic.name, part) for part in topic.partitions]
            )
            for topic in req.topics
        ],
    )


def _delete(ctx: Context, topic: str, part: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=part.partition_index, low_watermark=-1, error_code=0)
    try:
        partition = ctx.services.replicas.get(topic, part.partition_index)
        result.low_watermark = partition.delete_records(part.offset)
    except BrokerError as error:
        result.error_code = error.code
    return result


HANDLER = Handler(DeleteRecordsRequest, DeleteRecordsResponse, versions=(0, 2), handle=handle)
