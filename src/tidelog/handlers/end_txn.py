"""EndTxn (26), v0-5. Commits or aborts a transaction: answered once that is stored, before markers are written.

v2 a fenced producer is told PRODUCER_FENCED · v3 flexible · v5 every end raises the epoch, and the answer says to what
(KIP-890); what nothing was put into can be aborted too
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.transaction import BUMPS_EPOCHS
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.handlers.transaction_asking import Question, ask, fenced_as_known
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from typing import Any

    from tidelog.errors import BrokerError, ErrorCode

_BUMPS_EPOCHS_SINCE = 5


def handle(ctx: Context, req: EndTxnRequest) -> Answer[EndTxnResponse]:
    def shape(answers: list[Any]) -> EndTxnResponse:
        answer: EndTxnResponse = answers[0]
        answer.error_code = fenced_as_known(answer.error_code, ctx.version)
        return answer

    def refused(error: BrokerError) -> EndTxnResponse:
        return _refuse(req, error.code, error.message)

    version = BUMPS_EPOCHS if ctx.version >= _BUMPS_EPOCHS_SINCE else 0
    return ask(ctx, [Question(req.transactional_id, req, refused)], shape, transaction_version=version)


def _refuse(_req: EndTxnRequest, code: ErrorCode, _message: str) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=code)


HANDLER = Handler(EndTxnRequest, EndTxnResponse, versions=(0, 5), handle=handle, refuse=_refuse)
