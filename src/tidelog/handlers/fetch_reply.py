"""Shaping the reply to a fetch, for consumers and followers alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.handlers.handler import Context
    from tidelog.replication.fetch_sessions import FetchScope, Wanted
    from tidelog.replication.partition import Partition

CURRENT_LEADER_SINCE = 12
NODE_ENDPOINTS_SINCE = 16
_TELLS_THE_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def topic_name(ctx: Context, topic_id: bytes) -> str:
    """Of a topic that requests name by its id. Roles may arrive before the image knows their topic."""
    name = ctx.services.replicas.name_of(topic_id)
    return ctx.services.image.topic_by_id(topic_id).name if name is None else name


def shape(ctx: Context, scope: FetchScope, results: Iterable[tuple[Wanted, PartitionData]]) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    moved: set[int] = set()
    for wanted, data in scope.select(results):
        last = topics[-1] if topics else None
        if last is None or last.topic != wanted.topic or last.topic_id != wanted.topic_id:
            last = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(data)
        if data.error_code and data.current_leader.leader_id >= 0:
            moved.add(data.current_leader.leader_id)
    reply = FetchResponse(throttle_time_ms=0, session_id=scope.session_id, responses=topics)
    if moved and ctx.version >= NODE_ENDPOINTS_SINCE:
        reply.node_endpoints = [
            NodeEndpoint(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack)
            for broker_id, endpoint, rack in ctx.services.image.endpoints(ctx.listener)
            if broker_id in moved
        ]
    return reply


def refused(error: BrokerError) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])


def empty(partition: int, error: BrokerError) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=error.code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def name_leader(ctx: Context, data: PartitionData, partition: Partition | None) -> None:
    """Tells a client that asked the wrong broker whom to ask, so that it can go there at once (KIP-951)."""
    if partition is not None and ctx.version >= CURRENT_LEADER_SINCE and data.error_code in _TELLS_THE_LEADER:
        data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def size_of(data: PartitionData) -> int:
    records = data.records
    if isinstance(records, bytes) or records is None:
        return 0
    assert not isinstance(records, bytearray | memoryview)
    return records.size
