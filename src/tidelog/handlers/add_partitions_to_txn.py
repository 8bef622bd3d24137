"""AddPartitionsToTxn (24), v0-5. Puts partitions into a transaction.

v2 a fenced producer is told PRODUCER_FENCED · v3 flexible · v4 asked by brokers, for many transactions at once: whether
partitions that are being written to are in them, or to put them in (KIP-890) · v5 TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.shard import added
from tidelog.coordinators.transactions.transaction import BUMPS_EPOCHS
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.handlers.transaction_asking import Question, ask, fenced_as_known
from tidelog.types import TopicPartition
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from typing import Any

_FROM_BROKERS_SINCE = 4
_ABORTABLE_HAS_A_NAME_SINCE = 5


def handle(ctx: Context, req: AddPartitionsToTxnRequest) -> Answer[AddPartitionsToTxnResponse]:
    if ctx.version < _FROM_BROKERS_SINCE:
        return _add_for_client(ctx, req)
    if ctx.peer_broker is None:
        raise BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers may ask for several transactions: use version 3"
        )

    def combine(results: list[Any]) -> AddPartitionsToTxnResponse:
        if ctx.version < _ABORTABLE_HAS_A_NAME_SINCE:
            _shape(results, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=0, results_by_transaction=results)

    questions = [_question(transaction) for transaction in req.transactions]
    return ask(ctx, questions, combine, transaction_version=BUMPS_EPOCHS)


def _add_for_client(ctx: Context, req: AddPartitionsToTxnRequest) -> Answer[AddPartitionsToTxnResponse]:
    transaction = _only_transaction(req)

    def combine(results: list[Any]) -> AddPartitionsToTxnResponse:
        _shape(results, ErrorCode.PRODUCER_FENCED, ErrorCode(fenced_as_known(ErrorCode.PRODUCER_FENCED, ctx.version)))
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)

    places = [TopicPartition(topic.name, each) for topic in transaction.topics for each in topic.partitions]
    unknown = {place for place in places if not _is_known(ctx, place)}
    if unknown:
        # All or nothing. Those that could have been added are told apart from those that are not there.
        codes = {
            place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if place in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            for place in places
        }
        return combine([added(transaction, codes)])
    return ask(ctx, [_question(transaction)], combine)


def _question(transaction: AddPartitionsToTxnTransaction) -> Question:
    def refused(error: BrokerError) -> AddPartitionsToTxnResult:
        return _all_refused(transaction, error.code)

    return Question(transaction.transactional_id, transaction, refused)


def _all_refused(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResult:
    places = (TopicPartition(topic.name, each) for topic in transaction.topics for each in topic.partitions)
    return added(transaction, dict.fromkeys(places, code))


def _only_transaction(req: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=req.v3_and_below_transactional_id,
        producer_id=req.v3_and_below_producer_id,
        producer_epoch=req.v3_and_below_producer_epoch,
        topics=req.v3_and_below_topics,
    )


def _is_known(ctx: Context, place: TopicPartition) -> bool:
    topic = ctx.services.image.topics.get(place.topic)
    return topic is not None and 0 <= place.partition < len(topic.partitions)


def _shape(results: list[AddPartitionsToTxnResult], code: ErrorCode, shown_as: ErrorCode) -> None:
    """Older versions have other names for some errors."""
    for result in results:
        for topic in result.topic_results:
            for each in topic.results_by_partition:
                if each.partition_error_code == code:
                    each.partition_error_code = shown_as


def _refuse(req: AddPartitionsToTxnRequest, code: ErrorCode, _message: str) -> AddPartitionsToTxnResponse:
    """The top has an error code since v4, and names partitions before."""
    refused = _all_refused(_only_transaction(req), code)
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE if refused.topic_results else code,
        results_by_topic_v3_and_below=refused.topic_results,
    )


HANDLER = Handler(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, versions=(0, 5), handle=handle, refuse=_refuse)
