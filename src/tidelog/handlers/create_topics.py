"""CreateTopics (19), v2-7. Creates topics.

v4 -1 means the broker's default · v5 flexible, the reply tells the settings · v7 topic ids
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.config.describe import describe_topic
from tidelog.controller.topic_rules import TopicSpec
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from tidelog.controller.image import TopicImage


async def handle(ctx: Context, req: CreateTopicsRequest) -> CreateTopicsResponse:
    times_named = Counter(topic.name for topic in req.topics)
    results = []
    for wanted in req.topics:
        try:
            if times_named[wanted.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is named more than once")
            topic = await ctx.services.topics.create(_spec(wanted), validate_only=req.validate_only)
            results.append(_created(ctx, topic, validate_only=req.validate_only))
        except BrokerError as error:
            results.append(
                CreatableTopicResult(name=wanted.name, error_code=error.code, error_message=error.message, configs=None)
            )
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _spec(wanted: CreatableTopic) -> TopicSpec:
    settings = {}
    for config in wanted.configs:
        if config.value is None:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"no value is given for {config.name}")
        settings[config.name] = config.value
    assignment = {each.partition_index: each.broker_ids for each in wanted.assignments}
    if len(assignment) != len(wanted.assignments):
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    return TopicSpec(wanted.name, wanted.num_partitions, wanted.replication_factor, assignment, settings)


def _created(ctx: Context, topic: TopicImage, *, validate_only: bool) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=bytes(16) if validate_only else topic.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(ctx.services.config, topic.settings)
        ],
    )


HANDLER = Handler(CreateTopicsRequest, CreateTopicsResponse, versions=(2, 7), handle=handle)
