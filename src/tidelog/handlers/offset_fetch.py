"""OffsetFetch (9), v1-10. Asks how far groups have read.

v2 null means all topics · v6 flexible · v7 only stable offsets · v8 several groups · v9 member epochs · v10 topic ids
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import Question, ask
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.errors import BrokerError

_MANY_GROUPS_SINCE = 8
_ERROR_AT_THE_TOP_SINCE = 2


def handle(ctx: Context, req: OffsetFetchRequest) -> Answer[OffsetFetchResponse]:
    if ctx.version >= _MANY_GROUPS_SINCE:
        questions = [
            _question(group.group_id, OffsetFetchRequest(groups=[group], require_stable=req.require_stable))
            for group in req.groups
        ]
        return ask(ctx, questions, lambda groups: OffsetFetchResponse(groups=groups))
    return ask(ctx, [_question(req.group_id, req)], lambda groups: _single(ctx, req, groups[0]))


def _question(group_id: str, request: OffsetFetchRequest) -> Question:
    def refused(error: BrokerError) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)

    return Question(group_id, request, refused)


def _single(ctx: Context, req: OffsetFetchRequest, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """The older form: one group, its error at the top, or in v1, which has no place there, with every partition."""
    reply = OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=part.partition_index,
                        committed_offset=part.committed_offset,
                        committed_leader_epoch=part.committed_leader_epoch,
                        metadata=part.metadata,
                        error_code=part.error_code,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
    if group.error_code and ctx.version < _ERROR_AT_THE_TOP_SINCE:
        reply.topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in req.topics or ()
        ]
    return reply


HANDLER = Handler(OffsetFetchRequest, OffsetFetchResponse, versions=(1, 10), handle=handle)
