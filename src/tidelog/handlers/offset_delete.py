"""OffsetDelete (47), v0. Deletes committed offsets of a group, but not of topics that it still reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import ask_one
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: OffsetDeleteRequest) -> Answer[OffsetDeleteResponse]:
    return ask_one(ctx, req.group_id, req, _refused)


def _refused(error: BrokerError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])


HANDLER = Handler(OffsetDeleteRequest, OffsetDeleteResponse, versions=(0, 0), handle=handle)
