"""DescribeTransactions (65), v0. Shows what the coordinator knows of transactional ids, each on its own broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.describe import missing
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.handlers.transaction_asking import Question, ask
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from typing import Any

    from tidelog.errors import BrokerError, ErrorCode


def handle(ctx: Context, req: DescribeTransactionsRequest) -> Answer[DescribeTransactionsResponse]:
    return ask(ctx, [_question(each) for each in dict.fromkeys(req.transactional_ids)], _combine)


def _question(transactional_id: str) -> Question:
    def refused(error: BrokerError) -> TransactionState:
        return missing(transactional_id, error.code)

    return Question(transactional_id, DescribeTransactionsRequest(transactional_ids=[transactional_id]), refused)


def _combine(states: list[Any]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _refuse(req: DescribeTransactionsRequest, code: ErrorCode, _message: str) -> DescribeTransactionsResponse:
    return _combine([missing(each, code) for each in req.transactional_ids])


HANDLER = Handler(
    DescribeTransactionsRequest, DescribeTransactionsResponse, versions=(0, 0), handle=handle, refuse=_refuse
)
