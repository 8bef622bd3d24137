"""LeaveGroup (13), v0-5. Members leave a classic group, from v3 several at once. v4 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import ask_one
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: LeaveGroupRequest) -> Answer[LeaveGroupResponse]:
    return ask_one(ctx, req.group_id, req, _refused)


def _refused(error: BrokerError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


HANDLER = Handler(LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), handle=handle)
