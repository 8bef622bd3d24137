"""OffsetForLeaderEpoch (23), v2-4. Tells where a leader epoch ended, so that readers notice a log that diverged.

v2 the caller's current epoch is checked (librdkafka speaks v2 only) · v4 flexible
"""

from __future__ import annotations

from tidelog.errors import BrokerError
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(ctx: Context, req: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_find(ctx, topic.topic, part) for part in topic.partitions]
            )
            for topic in req.topics
        ],
    )


def _find(ctx: Context, topic: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(error_code=0, partition=part.partition)
    try:
        partition = ctx.services.replicas.get(topic, part.partition)
        partition.check_leader(part.current_leader_epoch)
        if part.leader_epoch == partition.leader_epoch:
            result.leader_epoch, result.end_offset = part.leader_epoch, partition.log.log_end_offset
        else:
            result.leader_epoch, result.end_offset = partition.log.end_offset_for_epoch(part.leader_epoch)
    except BrokerError as error:
        result.error_code = error.code
    return result


HANDLER = Handler(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, versions=(2, 4), handle=handle)
