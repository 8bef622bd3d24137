"""OffsetCommit (8), v2-10. A group member, or somebody who manages offsets alone, stores how far it has read.

v6 leader epochs · v7 static members · v8 flexible · v9 member epochs of the new protocol · v10 topic ids
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.handlers.group_asking import Question, ask
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.errors import BrokerError


def handle(ctx: Context, req: OffsetCommitRequest) -> Answer[OffsetCommitResponse]:
    def refused(error: BrokerError) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error.code)
                        for part in topic.partitions
                    ],
                )
                for topic in req.topics
            ]
        )

    # The empty group id is legal here: clients without a group have used it to keep offsets.
    return ask(ctx, [Question(req.group_id, req, refused)], _only)


def _only(answers: list[OffsetCommitResponse]) -> OffsetCommitResponse:
    return answers[0]


HANDLER = Handler(OffsetCommitRequest, OffsetCommitResponse, versions=(2, 10), handle=handle)
