"""InitProducerId (22), v0-6. Gives a producer its id and epoch; fences the previous holder of a transactional id.

v2 flexible · v3 the caller sends its current id and epoch · v4 a fenced producer is told PRODUCER_FENCED · v6 two-phase
commits: the caller may find what it had prepared. Without a transactional id, a fresh id at epoch 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler, Waiting
from tidelog.handlers.transaction_asking import Question, ask, fenced_as_known
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from typing import Any

_NO_ID = -1
_FENCED_HAS_A_NAME_SINCE = 4


def handle(ctx: Context, req: InitProducerIdRequest) -> Answer[InitProducerIdResponse]:
    if req.transactional_id == "":
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
    if (req.producer_id == _NO_ID) != (req.producer_epoch == _NO_ID):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "give producer id and epoch together, or neither")
    if req.transactional_id is None:
        return _fresh(ctx)
    services = ctx.services
    if services.transactions.coordinator.partition_of("") is None or not services.producer_ids.stocked:
        return _prepare_and_ask(ctx, req)
    return _ask(ctx, req)


async def _fresh(ctx: Context) -> InitProducerIdResponse:
    producer_id = await ctx.services.producer_ids.take()
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


async def _prepare_and_ask(
    ctx: Context, req: InitProducerIdRequest
) -> InitProducerIdResponse | Waiting[InitProducerIdResponse]:
    """The coordinator decides at once: the id it may need has to be at hand."""
    await ctx.services.transactions.ensure_topic()
    await ctx.services.producer_ids.stock()
    return _ask(ctx, req)


def _ask(ctx: Context, req: InitProducerIdRequest) -> InitProducerIdResponse | Waiting[InitProducerIdResponse]:
    def shape(answers: list[Any]) -> InitProducerIdResponse:
        answer: InitProducerIdResponse = answers[0]
        answer.error_code = fenced_as_known(answer.error_code, ctx.version, _FENCED_HAS_A_NAME_SINCE)
        return answer

    def refused(error: BrokerError) -> InitProducerIdResponse:
        return _refuse(req, error.code, error.message)

    assert req.transactional_id is not None
    return ask(ctx, [Question(req.transactional_id, req, refused)], shape)


def _refuse(_req: InitProducerIdRequest, code: ErrorCode, _message: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=_NO_ID)


HANDLER = Handler(InitProducerIdRequest, InitProducerIdResponse, versions=(0, 6), handle=handle, refuse=_refuse)
