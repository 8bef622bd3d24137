"""DeleteTopics (20), v1-6. Deletes topics and all their records.

v4 flexible · v5 error messages · v6 by name or by id
"""

from __future__ import annotations

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


async def handle(ctx: Context, req: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted = req.topics or [DeleteTopicState(name=name) for name in req.topic_names]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=[await _delete(ctx, each) for each in wanted])


async def _delete(ctx: Context, wanted: DeleteTopicState) -> DeletableTopicResult:
    result = DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id, error_code=0)
    try:
        image = ctx.services.image
        if not ctx.services.config.delete_topic_enable:
            raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
        if wanted.name is not None and any(wanted.topic_id):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "name a topic or give its id, not both")
        topic = image.topic_by_id(wanted.topic_id) if wanted.name is None else image.topic(wanted.name)
        result.name, result.topic_id = topic.name, topic.topic_id
        await ctx.services.topics.delete(topic.name)
    except BrokerError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


HANDLER = Handler(DeleteTopicsRequest, DeleteTopicsResponse, versions=(1, 6), handle=handle)
