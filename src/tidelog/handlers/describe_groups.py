"""DescribeGroups (15), v0-6. Shows the state and members of classic groups.

v3 authorized operations · v4 static members · v5 flexible · v6 a group that is not there is an error
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.authorized_operations import GROUP_OPERATIONS
from tidelog.handlers.group_asking import Question, ask
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: DescribeGroupsRequest) -> Answer[DescribeGroupsResponse]:
    def combine(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if req.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    return ask(ctx, [_question(group_id) for group_id in req.groups], combine)


def _question(group_id: str) -> Question:
    def refused(error: BrokerError) -> DescribedGroup:
        return DescribedGroup(
            error_code=error.code,
            error_message=error.message,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )

    return Question(group_id, DescribeGroupsRequest(groups=[group_id]), refused)


HANDLER = Handler(DescribeGroupsRequest, DescribeGroupsResponse, versions=(0, 6), handle=handle)
