"""DescribeProducers (61), v0. Shows who has written to partitions, and which transactions are open there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from tidelog.storage.producers import Producer


def handle(ctx: Context, req: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(ctx, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in req.topics
        ],
    )


def _describe(ctx: Context, topic: str, index: int) -> PartitionResponse:
    reply = PartitionResponse(partition_index=index, error_code=0, active_producers=[])
    try:
        partition = ctx.services.replicas.get(topic, index)
        partition.check_leader()
        reply.active_producers = [_shape(each, producer) for each, producer in partition.log.producers]
    except BrokerError as error:
        reply.error_code, reply.error_message = error.code, error.message
    return reply


def _shape(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_seen_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_first_offset,
    )


HANDLER = Handler(DescribeProducersRequest, DescribeProducersResponse, versions=(0, 0), handle=handle)
