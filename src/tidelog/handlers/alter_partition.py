"""AlterPartition (56), v2-3. A leader asks the controller for other in-sync replicas (KIP-497).

v2 topics by id · v3 with the broker epochs of the replicas (KIP-903)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.controller_asking import check_sender, controller_of
from tidelog.handlers.handler import Handler
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from tidelog.handlers.handler import Context


async def handle(ctx: Context, req: AlterPartitionRequest) -> AlterPartitionResponse:
    check_sender(ctx, req.broker_id)
    return await controller_of(ctx).alter_partition(req.broker_id, req.broker_epoch, req)


HANDLER: Handler[AlterPartitionRequest, AlterPartitionResponse] = Handler(
    AlterPartitionRequest, AlterPartitionResponse, versions=(2, 3), handle=handle
)
