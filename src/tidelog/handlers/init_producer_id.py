"""InitProducerId (22), v0-5. Gives an idempotent producer a fresh id, at epoch 0.

v2 flexible · v3 the caller sends its current id and epoch. Transactional ids are refused until transactions are served.
"""

from __future__ import annotations

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NO_ID = -1


async def handle(ctx: Context, req: InitProducerIdRequest) -> InitProducerIdResponse:
    if req.transactional_id is not None:
        if not req.transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served by this broker yet")
    if (req.producer_id == _NO_ID) != (req.producer_epoch == _NO_ID):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "give producer id and epoch together, or neither")
    producer_id = await ctx.services.producer_ids.take()
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


def _refuse(_req: InitProducerIdRequest, code: ErrorCode, _message: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=_NO_ID)


HANDLER = Handler(InitProducerIdRequest, InitProducerIdResponse, versions=(0, 5), handle=handle, refuse=_refuse)
