"""Answers leaders that ask for other in-sync replicas (AlterPartition), in a reign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.isr_changes import judge
from tidelog.controller.transitions import PartitionChange, find
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)

if TYPE_CHECKING:
    from tidelog.controller.image import ClusterImage
    from tidelog.controller.moves import Moves
    from tidelog.controller.reign import Reign
    from tidelog.wire.messages.alter_partition import PartitionData, TopicData


async def alter_partition(
    reign: Reign, moves: Moves, broker_id: int, broker_epoch: int, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    """Raises BrokerError(STALE_BROKER_EPOCH)."""
    reign.check_broker(broker_id, broker_epoch)
    changes: dict[TopicPartition, PartitionChange] = {}
    errors: dict[tuple[bytes, int], ErrorCode] = {}
    for topic in request.topics:
        name = _name(reign.state, topic)
        for asked in topic.partitions:
            verdict = (
                judge(reign.state, reign.shutting_down, broker_id, name, asked)
                if name is not None
                else ErrorCode.UNKNOWN_TOPIC_ID
            )
            if isinstance(verdict, PartitionChange):
                changes[verdict.topic_partition] = verdict
                verdict = ErrorCode.NONE
            errors[topic.topic_id, asked.partition_index] = verdict
    await reign.commit(list(changes.values()), metadata_only=True)
    response = _response(reign.state, request, errors)
    await moves.progress(changes)
    for name in {name for name, _number in changes}:
        await reign.observe(reign.state.topics[name])
    return response


def _name(image: ClusterImage, topic: TopicData) -> str | None:
    return image.names.get(topic.topic_id)  # type: ignore[call-overload, no-any-return] # looked up by its base type


def _response(
    image: ClusterImage, request: AlterPartitionRequest, errors: dict[tuple[bytes, int], ErrorCode]
) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        throttle_time_ms=0,
        error_code=0,
        topics=[
            TopicDataResponse(
                topic_id=topic.topic_id,
                partitions=[
                    _partition(image, topic, asked, errors[topic.topic_id, asked.partition_index])
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _partition(image: ClusterImage, topic: TopicData, asked: PartitionData, error: ErrorCode) -> PartitionDataResponse:
    name = _name(image, topic)
    partition = find(image, TopicPartition(name, asked.partition_index)) if name is not None else None
    if error is not ErrorCode.NONE or partition is None:
        return PartitionDataResponse(
            partition_index=asked.partition_index,
            error_code=error,
            leader_id=-1,
            leader_epoch=-1,
            isr=[],
            partition_epoch=-1,
        )
    return PartitionDataResponse(
        partition_index=asked.partition_index,
        error_code=0,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=int(partition.recovering),
        partition_epoch=partition.partition_epoch,
    )
