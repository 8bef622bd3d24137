"""ControlledShutdown (7), v1-3. A broker that is about to stop has its leaderships moved first.

v2 with the broker's epoch · v3 flexible. Version 0 has a header of its own, which no broker sends any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.controller_asking import check_sender, controller_of
from tidelog.handlers.handler import Handler
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

if TYPE_CHECKING:
    from tidelog.handlers.handler import Context


async def handle(ctx: Context, req: ControlledShutdownRequest) -> ControlledShutdownResponse:
    check_sender(ctx, req.broker_id)
    remaining = await controller_of(ctx).controlled_shutdown(req.broker_id, req.broker_epoch)
    return ControlledShutdownResponse(
        error_code=0,
        remaining_partitions=[
            RemainingPartition(topic_name=name, partition_index=number) for name, number in remaining
        ],
    )


HANDLER: Handler[ControlledShutdownRequest, ControlledShutdownResponse] = Handler(
    ControlledShutdownRequest, ControlledShutdownResponse, versions=(1, 3), handle=handle
)
