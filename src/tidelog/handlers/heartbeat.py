"""Heartbeat (12), v0-4. A member of a classic group says that it is alive, and hears of a rebalance.

v3 static members · v4 flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import ask_one
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: HeartbeatRequest) -> Answer[HeartbeatResponse]:
    return ask_one(ctx, req.group_id, req, _refused)


def _refused(error: BrokerError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)


HANDLER = Handler(HeartbeatRequest, HeartbeatResponse, versions=(0, 4), handle=handle)
