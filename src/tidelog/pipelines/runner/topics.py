"""Topics that a pipeline needs, and that are made if they do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client.blocking.admin import Admin
from tidelog.client.config import ClientConfig
from tidelog.client.descriptions import NewTopic
from tidelog.errors import BrokerError, ErrorCode
from tidelog.pipelines.definition.sinks import TopicWrite
from tidelog.pipelines.runner.clients import client_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipelines.definition.pipeline import Pipeline


def wanted_topics(pipeline: Pipeline) -> list[NewTopic]:
    """Dead letters, tables, and whatever sink says how many partitions it wants."""
    wanted = {}
    if any(pipeline.decoded()):
        wanted[pipeline.dead_letter_topic] = NewTopic(pipeline.dead_letter_topic)
    for query in pipeline.queries:
        writes = query.sink.writes
        if isinstance(writes, TopicWrite) and writes.topic and (writes.compacted or writes.partitions is not None):
            wanted[writes.topic] = NewTopic(
                writes.topic,
                partitions=-1 if writes.partitions is None else writes.partitions,
                configs={"cleanup.policy": "compact"} if writes.compacted else {},
            )
    return list(wanted.values())


def make_topics(wanted: list[NewTopic], kafka: Mapping[str, Any]) -> None:
    if not wanted:
        return
    with Admin(client_config(ClientConfig, kafka)) as admin:
        for topic in wanted:
            try:
                admin.create_topic(topic.name, partitions=topic.partitions, configs=topic.configs)
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
