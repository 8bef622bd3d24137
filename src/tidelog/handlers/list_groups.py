"""ListGroups (16), v0-5. Lists the groups that this broker coordinates. v3 flexible · v4 by state · v5 by type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.coordinators.groups.topics import Caller
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler, Waiting
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from tidelog.wire.declare import Struct


def handle(ctx: Context, req: ListGroupsRequest) -> Answer[ListGroupsResponse]:
    """Asks every shard. A shard that is still loading makes the list incomplete, and its error says so."""
    groups = ctx.services.groups
    caller = Caller(ctx.version, ctx.client_id or "", f"/{ctx.client_host}", groups.known_topics)
    reply = ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])
    waiting: Waiting[ListGroupsResponse] = Waiting(lambda: None)
    shards = list(groups.coordinator)
    left = len(shards)

    def on_part(part: Struct | BrokerError) -> None:
        nonlocal left
        if isinstance(part, ListGroupsResponse):
            reply.groups += part.groups
        elif isinstance(part, BrokerError):
            reply.error_code = part.code
        left -= 1
        if not left:
            waiting.complete(reply)

    for shard in shards:
        try:
            shard.ask(req, caller, on_part)
        except BrokerError as error:
            on_part(error)
    return waiting if left else reply


def _refuse(_req: ListGroupsRequest, code: ErrorCode, _message: str) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code, groups=[])


HANDLER: Handler[Any, Any] = Handler(
    ListGroupsRequest, ListGroupsResponse, versions=(0, 5), handle=handle, refuse=_refuse
)
