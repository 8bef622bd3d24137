"""Whether a leader may have the in-sync replicas that it asks for by AlterPartition (KIP-497, KIP-903). Pure.

The leader proposes, the controller decides: a proposal that is based on an older state of the partition, or names a
replica that may not be in sync, is refused with the error that tells the leader what to do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.controller.transitions import NOBODY, PartitionChange, find
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.controller.image import BrokerIds, ClusterImage, PartitionImage
    from tidelog.wire.messages.alter_partition import PartitionData

UNKNOWN_EPOCH = -1
RECOVERED, RECOVERING = 0, 1


def judge(
    image: ClusterImage, shutting_down: BrokerIds, leader: int, topic: str, asked: PartitionData
) -> PartitionChange | ErrorCode:
    """What becomes of one partition of the request: a change, NONE if it is so already, or why not."""
    topic_partition = TopicPartition(topic, asked.partition_index)
    partition = find(image, topic_partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    members = [(state.broker_id, state.broker_epoch) for state in asked.new_isr_with_epochs]
    members += [(broker_id, UNKNOWN_EPOCH) for broker_id in asked.new_isr]
    isr = tuple(broker_id for broker_id, _epoch in members)
    recovering = asked.leader_recovery_state == RECOVERING
    error = _fenced(partition, leader, asked)
    if error is ErrorCode.INVALID_UPDATE_VERSION and (isr, recovering) == (partition.isr, partition.recovering):
        return ErrorCode.NONE  # asked again because the answer got lost
    if error is ErrorCode.NONE:
        error = _malformed(partition, isr, recovering=recovering)
    if error is ErrorCode.NONE:
        error = _ineligible(image, partition, members, shutting_down | image.offline.get(topic_partition, NOBODY))
    if error is not ErrorCode.NONE:
        return error
    if (isr, recovering) == (partition.isr, partition.recovering):
        return ErrorCode.NONE
    after = replace(partition, isr=isr, recovering=recovering, partition_epoch=partition.partition_epoch + 1)
    return PartitionChange(topic_partition, partition, after)


def _fenced(partition: PartitionImage, leader: int, asked: PartitionData) -> ErrorCode:
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # it knows more than we do: another controller has told it
    if asked.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if asked.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _malformed(partition: PartitionImage, isr: tuple[int, ...], *, recovering: bool) -> ErrorCode:
    wrong = (
        partition.leader not in isr
        or len(set(isr)) < len(isr)
        or any(replica not in partition.replicas for replica in isr)
        or (recovering and (len(isr) > 1 or not partition.recovering))
    )
    return ErrorCode.INVALID_REQUEST if wrong else ErrorCode.NONE


def _ineligible(
    image: ClusterImage, partition: PartitionImage, members: Sequence[tuple[int, int]], leaving: BrokerIds
) -> ErrorCode:
    """A replica may join if it lives, in the life that the leader knows, is to stay, and is no observer.

    `leaving` are brokers that are about to stop, or whose replica has failed.
    """
    for broker_id, epoch in members:
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id in partition.observers:
            return ErrorCode.INELIGIBLE_REPLICA
        if epoch not in (UNKNOWN_EPOCH, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        if broker_id in leaving and broker_id not in partition.isr:
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
