"""AddOffsetsToTxn (25), v0-4. Puts a group's offsets into a transaction: the partition that they are stored in.

v2 a fenced producer is told PRODUCER_FENCED · v3 flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.shard import added
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler, Waiting
from tidelog.handlers.transaction_asking import Question, ask, fenced_as_known
from tidelog.types import TopicPartition
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from typing import Any


def handle(ctx: Context, req: AddOffsetsToTxnRequest) -> Answer[AddOffsetsToTxnResponse]:
    if ctx.services.groups.coordinator.partition_of(req.group_id) is None:
        return _create_and_ask(ctx, req)
    return _ask(ctx, req)


async def _create_and_ask(
    ctx: Context, req: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Waiting[AddOffsetsToTxnResponse]:
    await ctx.services.groups.ensure_topic()
    return _ask(ctx, req)


def _ask(ctx: Context, req: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | Waiting[AddOffsetsToTxnResponse]:
    offsets = ctx.services.groups.coordinator
    partition = offsets.partition_of(req.group_id)
    if partition is None:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the internal topic is being created: try again")
    place = TopicPartition(offsets.topic, partition)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=req.transactional_id,
        producer_id=req.producer_id,
        producer_epoch=req.producer_epoch,
        topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition])],
    )

    def refused(error: BrokerError) -> AddPartitionsToTxnResult:
        return added(transaction, {place: error.code})

    def shape(answers: list[Any]) -> AddOffsetsToTxnResponse:
        code = answers[0].topic_results[0].results_by_partition[0].partition_error_code
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=fenced_as_known(code, ctx.version))

    return ask(ctx, [Question(req.transactional_id, transaction, refused)], shape)


HANDLER = Handler(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, versions=(0, 4), handle=handle)
