"""UnregisterBroker (64), v0. Forgets a broker that will not come back: nothing waits for it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.controller_asking import controller_of
from tidelog.handlers.handler import Handler
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from tidelog.errors import ErrorCode
    from tidelog.handlers.handler import Context


async def handle(ctx: Context, req: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    await controller_of(ctx).unregister_broker(req.broker_id)
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message=None)


def refuse(_req: UnregisterBrokerRequest, code: ErrorCode, message: str) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=message)


HANDLER: Handler[UnregisterBrokerRequest, UnregisterBrokerResponse] = Handler(
    UnregisterBrokerRequest, UnregisterBrokerResponse, versions=(0, 0), handle=handle, refuse=refuse
)
