"""ListTransactions (66), v0-2. Lists the transactional ids that this broker coordinates.

v1 only those whose transaction is open for longer · v2 only those whose id matches a pattern
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.handlers.transaction_asking import ask_everywhere
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from typing import Any


def handle(ctx: Context, req: ListTransactionsRequest) -> Answer[ListTransactionsResponse]:
    return ask_everywhere(ctx, req, _refused, _combine)


def _refused(error: BrokerError) -> ListTransactionsResponse:
    return _listed(error.code)


def _combine(answers: list[Any]) -> ListTransactionsResponse:
    """A list in which some are missing would mislead: then there is none."""
    failed = next((each for each in answers if each.error_code), None)
    if failed is not None:
        return _listed(failed.error_code)
    reply = _listed(ErrorCode.NONE)
    for each in answers:
        reply.transaction_states += each.transaction_states
        reply.unknown_state_filters = each.unknown_state_filters
    return reply


def _listed(code: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=[], transaction_states=[]
    )


HANDLER = Handler(ListTransactionsRequest, ListTransactionsResponse, versions=(0, 2), handle=handle)
