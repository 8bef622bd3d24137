"""ElectLeaders (43), v0-2. Has partitions led by their preferred replicas, or by any live one.

v1 type of election, error at the top · v2 flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.controller_asking import controller_of
from tidelog.handlers.handler import Handler
from tidelog.types import TopicPartition
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.handlers.handler import Context

_ERROR_AT_THE_TOP_SINCE = 1


async def handle(ctx: Context, req: ElectLeadersRequest) -> ElectLeadersResponse:
    wanted = None
    if req.topic_partitions is not None:
        wanted = [TopicPartition(topic.topic, number) for topic in req.topic_partitions for number in topic.partitions]
    try:
        outcome: Mapping[TopicPartition, ErrorCode] = await controller_of(ctx).elect_leaders(req.election_type, wanted)
    except BrokerError as error:
        if ctx.version >= _ERROR_AT_THE_TOP_SINCE:
            raise
        outcome = dict.fromkeys(wanted or (), error.code)
    topics: dict[str, ReplicaElectionResult] = {}
    for (name, number), code in outcome.items():
        topic = topics.setdefault(name, ReplicaElectionResult(topic=name, partition_result=[]))
        topic.partition_result.append(
            PartitionResult(partition_id=number, error_code=code, error_message=code.description if code else None)
        )
    return ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=list(topics.values()))


HANDLER: Handler[ElectLeadersRequest, ElectLeadersResponse] = Handler(
    ElectLeadersRequest, ElectLeadersResponse, versions=(0, 2), handle=handle
)
