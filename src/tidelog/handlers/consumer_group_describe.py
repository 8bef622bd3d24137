"""ConsumerGroupDescribe (69), v0-1. Shows the state and members of groups of the new protocol. v1 member types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.authorized_operations import GROUP_OPERATIONS
from tidelog.handlers.group_asking import Question, ask
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: ConsumerGroupDescribeRequest) -> Answer[ConsumerGroupDescribeResponse]:
    def combine(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        if req.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)

    return ask(ctx, [_question(group_id) for group_id in req.group_ids], combine)


def _question(group_id: str) -> Question:
    def refused(error: BrokerError) -> DescribedGroup:
        return DescribedGroup(
            error_code=error.code,
            error_message=error.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )

    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    return Question(group_id, request, refused)


HANDLER = Handler(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, versions=(0, 1), handle=handle)
