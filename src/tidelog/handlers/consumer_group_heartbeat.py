"""ConsumerGroupHeartbeat (68), v0-1. The whole of the new group protocol: join, keep alive, reconcile, leave (KIP-848).

v1 the client makes its member id, and may subscribe by a regular expression
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import ask_one
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: ConsumerGroupHeartbeatRequest) -> Answer[ConsumerGroupHeartbeatResponse]:
    return ask_one(ctx, req.group_id, req, _refused)


def _refused(error: BrokerError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


HANDLER = Handler(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, versions=(0, 1), handle=handle)
