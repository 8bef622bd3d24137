"""ListOffsets (2), v1-11. Finds offsets by timestamp, or by a mark.

v2 isolation level · v4 leader epochs · v5 OFFSET_NOT_AVAILABLE · v6 flexible · v7 largest timestamp
v8, v9, v11 marks of tiered storage
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_READ_COMMITTED = 1
_NOT_AVAILABLE_SINCE = 5


def handle(ctx: Context, req: ListOffsetsRequest) -> ListOffsetsResponse:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in req.topics:
        for part in topic.partitions:
            key = (topic.name, part.partition_index)
            (repeated if key in seen else seen).add(key)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _find(ctx, req, topic.name, part, repeated=(topic.name, part.partition_index) in repeated)
                    for part in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


def _find(
    ctx: Context, req: ListOffsetsRequest, topic: str, part: ListOffsetsPartition, *, repeated: bool
) -> ListOffsetsPartitionResponse:
    reply = ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=0)
    try:
        if repeated:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
        partition = ctx.services.replicas.get(topic, part.partition_index)
        partition.check_leader(part.current_leader_epoch)
        if ctx.version < _SINCE.get(part.timestamp, 0) or part.timestamp < EARLIEST_PENDING_UPLOAD:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"{part.timestamp} has no meaning in this version")
        _answer(reply, partition, part.timestamp, committed_only=req.isolation_level == _READ_COMMITTED)
    except BrokerError as error:
        unready = error.code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < _NOT_AVAILABLE_SINCE
        reply.error_code = ErrorCode.LEADER_NOT_AVAILABLE if unready else error.code
    return reply


def _answer(reply: ListOffsetsPartitionResponse, partition: Partition, timestamp: int, *, committed_only: bool) -> None:
    log = partition.log
    end = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp == LATEST:
        _check_end_known(partition)
        reply.offset, reply.leader_epoch = end, partition.leader_epoch
    elif timestamp in {EARLIEST, EARLIEST_LOCAL}:
        reply.offset, reply.leader_epoch = log.log_start_offset, log.epochs.at(log.log_start_offset)
    elif timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return  # nothing is tiered: no offset
    else:
        found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is not None and found.offset < end:
            reply.offset, reply.timestamp, reply.leader_epoch = found.offset, found.timestamp, found.leader_epoch
        else:
            _check_end_known(partition)


def _check_end_known(partition: Partition) -> None:
    """A new leader's high watermark may lie behind what its predecessor told. No reader should see it go back."""
    if len(partition.replicas) == 1:
        return
    starts = partition.log.epochs.starts
    if starts and starts[-1].epoch == partition.leader_epoch and partition.high_watermark < starts[-1].start_offset:
        raise BrokerError(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition.topic_partition} has a new leader, which waits for followers"
        )


HANDLER = Handler(ListOffsetsRequest, ListOffsetsResponse, versions=(1, 11), handle=handle)
