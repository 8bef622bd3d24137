"""Transactions as administrators see them (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.regex import TopicPattern
from tidelog.coordinators.transactions.states import BY_NAME, TransactionState
from tidelog.coordinators.transactions.transaction import by_topic
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.messages import describe_transactions, list_transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.coordinators.transactions.transaction import Transaction
    from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def described(transactional_id: str, known: Transaction | None) -> describe_transactions.TransactionState:
    if known is None:
        return missing(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return describe_transactions.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=known.state.shown_as,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.identity.producer_id,
        producer_epoch=known.identity.epoch,
        topics=[
            describe_transactions.TopicData(topic=each.topic, partitions=each.partition_ids)
            for each in by_topic(known.partitions)
        ],
    )


def missing(transactional_id: str, code: ErrorCode) -> describe_transactions.TransactionState:
    return describe_transactions.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=-1,
        producer_epoch=-1,
        topics=[],
    )


def listed(known: Iterable[Transaction], request: ListTransactionsRequest, now_ms: int) -> ListTransactionsResponse:
    try:
        is_wanted = _filter(request, now_ms)
    except BrokerError as error:
        return list_transactions.ListTransactionsResponse(
            throttle_time_ms=0, error_code=error.code, unknown_state_filters=[], transaction_states=[]
        )
    return list_transactions.ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in request.state_filters if name not in BY_NAME],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.identity.producer_id,
                transaction_state=each.state.shown_as,
            )
            for each in known
            if is_wanted(each)
        ],
    )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    states: set[TransactionState] | None = None
    if request.state_filters:
        states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    producer_ids = frozenset(request.producer_id_filters)
    pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def is_wanted(each: Transaction) -> bool:
        return (
            (states is None or each.state in states)
            and (not producer_ids or each.identity.producer_id in producer_ids)
            and (request.duration_filter < 0 or _lasts_longer(each, request.duration_filter, now_ms))
            and (pattern is None or pattern.matches(each.transactional_id))
        )

    return is_wanted


def _lasts_longer(each: Transaction, duration_ms: int, now_ms: int) -> bool:
    return each.started_ms >= 0 and not each.state.idle and now_ms - each.started_ms > duration_ms
