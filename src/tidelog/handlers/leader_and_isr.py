"""LeaderAndIsr (4), v5-7. The controller tells this broker which partitions it leads or follows.

v5 topics by id · v6 leader recovery state (KIP-704) · v7 for controllers of another kind

Partitions to lead go first: clients wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.from_controller import FULL, PARTITIONS_PER_TURN, check_controller, learn_settings
from tidelog.handlers.handler import Context, Handler
from tidelog.handlers.strays import why_stray
from tidelog.replication.role import Role
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrTopicState

logger = logging.getLogger(__name__)


async def handle(ctx: Context, req: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    check_controller(ctx, req)
    services = ctx.services
    await learn_settings(ctx, req, ((topic.topic_name, topic.topic_id) for topic in req.topic_states))
    settings = services.settings
    configs = {
        topic.topic_name: settings.topic_config(settings.of_topic(topic.topic_name)) for topic in req.topic_states
    }
    roles = [_role(topic, state) for topic in req.topic_states for state in topic.partition_states]
    roles.sort(key=lambda role: role.leader != services.broker_id)
    codes: dict[TopicPartition, ErrorCode] = {}
    for number, role in enumerate(roles, 1):
        codes[role.topic_partition] = _take(ctx, role, configs)
        if number % PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
    if req.type == FULL:
        _stop_all_but(ctx, codes)
        _part_with_strays(ctx)
    return LeaderAndIsrResponse(
        error_code=0,
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index,
                        error_code=codes[TopicPartition(topic.topic_name, state.partition_index)],
                    )
                    for state in topic.partition_states
                ],
            )
            for topic in req.topic_states
        ],
    )


def _role(topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState) -> Role:
    return Role(
        TopicPartition(topic.topic_name, state.partition_index),
        TopicId(topic.topic_id),
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        state.partition_epoch,
        adding=tuple(state.adding_replicas),
        removing=tuple(state.removing_replicas),
        is_new=state.is_new,
    )


def _take(ctx: Context, role: Role, configs: dict[str, TopicConfig]) -> ErrorCode:
    if ctx.services.broker_id not in role.replicas:
        logger.error("%s: a role was given to this broker, which holds no replica of it", role.topic_partition)
        return ErrorCode.INVALID_REQUEST
    try:
        ctx.services.replicas.take_role(role, configs[role.topic_partition.topic])
    except (BrokerError, OSError) as error:
        logger.error("%s: the role given cannot be taken: %s", role.topic_partition, error)
        return error.code if isinstance(error, BrokerError) else ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def _stop_all_but(ctx: Context, named: dict[TopicPartition, ErrorCode]) -> None:
    """Stops what a full request does not name."""
    replicas = ctx.services.replicas
    for partition in tuple(replicas):
        if partition.topic_partition not in named:
            logger.warning("%s: the controller knows nothing of it here, it is stopped", partition.topic_partition)
            replicas.stop(partition.topic_partition, delete=False)


def _part_with_strays(ctx: Context) -> None:
    """Logs without a role, after a full request, may be of partitions that were moved while this broker was away."""
    services = ctx.services
    for place, topic_id in services.replicas.without_role():
        why = why_stray(services.image, services.broker_id, place, topic_id)
        if why is None:
            logger.warning("%s: its log is here, but the cluster does not say what became of it: left alone", place)
            continue
        try:
            path = services.replicas.put_away(place)
        except OSError as error:
            logger.error("%s: its stray log cannot be put away: %s", place, error)
        else:
            logger.warning("%s: %s. Its log goes in a day, until then it is %s", place, why, path)


HANDLER: Handler[LeaderAndIsrRequest, LeaderAndIsrResponse] = Handler(
    LeaderAndIsrRequest, LeaderAndIsrResponse, versions=(5, 7), handle=handle
)
