"""TxnOffsetCommit (28), v0-5. A producer stores how far a group has read, as part of its transaction.

v2 leader epochs · v3 flexible, and the producer may speak for a member of the group · v4 TRANSACTION_ABORTABLE · v5 the
group's partition joins the transaction by this request, there is no AddOffsetsToTxn before it (KIP-890)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.image import OFFSETS_TOPIC
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.group_asking import Question, ask
from tidelog.handlers.handler import Context, Handler, Waiting
from tidelog.records.header import NO_SEQUENCE
from tidelog.storage.verification import TRUSTED
from tidelog.types import TopicPartition
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.storage.verification import Guard

_LOADING_IS_UNDERSTOOD_SINCE = 2
_ABORTABLE_IS_UNDERSTOOD_SINCE = 4
_JOINS_BY_ITSELF_SINCE = 5

_QUESTIONS_MAX = 5
"""To the transaction's coordinator about one request, when markers overtake the answers."""

_TOLD_INSTEAD = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""What is wrong with the internal topic's partition is wrong with the coordinator, for those who ask it."""


async def handle(
    ctx: Context, req: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Waiting[TxnOffsetCommitResponse]:
    def refused(error: BrokerError) -> TxnOffsetCommitResponse:
        return _everywhere(req, _told(error.code, ctx.version))

    try:
        guard = await _verified(ctx, req)
    except BrokerError as error:
        return refused(error)
    return ask(ctx, [Question(req.group_id, req, refused)], _only, guard=guard)


async def _verified(ctx: Context, req: TxnOffsetCommitRequest) -> Guard | None:
    """Leave to begin the transaction in the group's partition; None if that has happened before. Raises BrokerError."""
    if not req.group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID, "a group's id cannot be empty")
    services = ctx.services
    groups = services.groups.coordinator
    groups.shard_of(req.group_id)  # nobody need be asked if the group is not here
    number = groups.partition_of(req.group_id)
    assert number is not None, "it has a shard"
    joins = ctx.version >= _JOINS_BY_ITSELF_SINCE
    if not joins and not services.config.transaction_partition_verification_enable:
        return TRUSTED
    producers = services.replicas.get(OFFSETS_TOPIC, number).log.producers
    place = TopicPartition(OFFSETS_TOPIC, number)
    asked_with: Guard | None = None
    for _ in range(_QUESTIONS_MAX):
        guard = producers.verification(req.producer_id, req.producer_epoch, NO_SEQUENCE, services.clock.now_ms())
        if guard is None or guard is asked_with:
            return guard
        asked_with = guard  # and what was asked before, if anything, was overtaken by the marker of another transaction
        answers = await services.transactions.verify(
            req.transactional_id, req.producer_id, req.producer_epoch, [place], add=joins
        )
        if answers[place]:
            raise BrokerError(answers[place], "the transaction's coordinator does not vouch for it")
    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "markers overtook all questions: try again")


def _told(code: ErrorCode, version: int) -> ErrorCode:
    code = _TOLD_INSTEAD.get(code, code)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_IS_UNDERSTOOD_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_IS_UNDERSTOOD_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _everywhere(req: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in req.topics
        ],
    )


def _only(answers: list[TxnOffsetCommitResponse]) -> TxnOffsetCommitResponse:
    return answers[0]


HANDLER = Handler(TxnOffsetCommitRequest, TxnOffsetCommitResponse, versions=(0, 5), handle=handle)
