"""SyncGroup (14), v0-5. The leader hands in the assignment of a classic group, and every member gets its share.

v3 static members · v4 flexible · v5 protocol type and name are checked
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import ask_one
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: SyncGroupRequest) -> Answer[SyncGroupResponse]:
    return ask_one(ctx, req.group_id, req, _refused)


def _refused(error: BrokerError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")


HANDLER = Handler(SyncGroupRequest, SyncGroupResponse, versions=(0, 5), handle=handle)
