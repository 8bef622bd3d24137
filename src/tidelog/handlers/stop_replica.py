"""StopReplica (5), v3-4. The controller has this broker stop replicas, and delete those it does not need any more.

v3 leader epochs · v4 for controllers of another kind
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.from_controller import PARTITIONS_PER_TURN, check_controller
from tidelog.handlers.handler import Context, Handler
from tidelog.types import TopicPartition
from tidelog.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from tidelog.wire.messages.stop_replica import StopReplicaPartitionState

logger = logging.getLogger(__name__)

_WHATEVER_THE_EPOCH = frozenset({-1, -2})
"""Not known; or the topic is deleted, whatever its epochs are."""


async def handle(ctx: Context, req: StopReplicaRequest) -> StopReplicaResponse:
    check_controller(ctx, req)
    answers: list[StopReplicaPartitionError] = []
    for topic in req.topic_states:
        for state in topic.partition_states:
            code = _stop(ctx, TopicPartition(topic.topic_name, state.partition_index), state)
            answers.append(
                StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                )
            )
            if len(answers) % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
    return StopReplicaResponse(error_code=0, partition_errors=answers)


def _stop(ctx: Context, place: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
    replicas = ctx.services.replicas
    current = replicas.leader_epoch_of(place)
    if current is not None and state.leader_epoch not in _WHATEVER_THE_EPOCH and state.leader_epoch < current:
        return ErrorCode.FENCED_LEADER_EPOCH
    try:
        replicas.stop(place, delete=state.delete_partition)
    except (BrokerError, OSError) as error:
        logger.error("%s cannot be stopped: %s", place, error)
        return error.code if isinstance(error, BrokerError) else ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


HANDLER: Handler[StopReplicaRequest, StopReplicaResponse] = Handler(
    StopReplicaRequest, StopReplicaResponse, versions=(3, 4), handle=handle
)
