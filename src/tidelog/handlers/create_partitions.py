"""CreatePartitions (37), v0-3. Adds partitions to topics. v2 flexible."""

from __future__ import annotations

from collections import Counter

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(ctx: Context, req: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times_named = Counter(topic.name for topic in req.topics)
    results = []
    for wanted in req.topics:
        result = CreatePartitionsTopicResult(name=wanted.name, error_code=0)
        try:
            if times_named[wanted.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is named more than once")
            await _grow(ctx, wanted, validate_only=req.validate_only)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


async def _grow(ctx: Context, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    explicit = None if wanted.assignments is None else [each.broker_ids for each in wanted.assignments]
    await ctx.services.topics.grow(wanted.name, wanted.count, explicit, validate_only=validate_only)


HANDLER = Handler(CreatePartitionsRequest, CreatePartitionsResponse, versions=(0, 3), handle=handle)
