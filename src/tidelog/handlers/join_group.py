"""JoinGroup (11), v0-9. A member enters a rebalance of a classic group, and is answered when all have.

v1 rebalance timeout · v4 the member comes back with the id it is given · v5 static members · v6 flexible · v9 a leader
that need not assign
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import ask_one
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from tidelog.errors import BrokerError

_NULL_PROTOCOL_SINCE = 7


def handle(ctx: Context, req: JoinGroupRequest) -> Answer[JoinGroupResponse]:
    def refused(error: BrokerError) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=error.code,
            protocol_name=None if ctx.version >= _NULL_PROTOCOL_SINCE else "",
            leader="",
            member_id=req.member_id,
            members=[],
        )

    return ask_one(ctx, req.group_id, req, refused)


HANDLER = Handler(JoinGroupRequest, JoinGroupResponse, versions=(0, 9), handle=handle)
