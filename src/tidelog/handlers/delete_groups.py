"""DeleteGroups (42), v0-2. Deletes groups that have no members, with their offsets. v2 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import Question, ask
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: DeleteGroupsRequest) -> Answer[DeleteGroupsResponse]:
    questions = [_question(group_id) for group_id in dict.fromkeys(req.groups_names)]
    return ask(ctx, questions, lambda results: DeleteGroupsResponse(throttle_time_ms=0, results=results))


def _question(group_id: str) -> Question:
    def refused(error: BrokerError) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)

    return Question(group_id, DeleteGroupsRequest(groups_names=[group_id]), refused)


HANDLER = Handler(DeleteGroupsRequest, DeleteGroupsResponse, versions=(0, 2), handle=handle)
