"""A topic's effective settings."""

from __future__ import annotations

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig, resolve_topic_config


def test_the_topics_own_value_stands_over_the_brokers() -> None:
    broker = BrokerConfig.parse({"log.retention.hours": "1", "log.segment.bytes": "2000000"})
    config = resolve_topic_config(broker, {"retention.ms": "5", "cleanup.policy": "compact,delete"})
    assert config.retention_ms == 5
    assert config.segment_bytes == 2_000_000
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.compacted
    assert resolve_topic_config(broker, {}).retention_ms == 3_600_000


@pytest.mark.parametrize(
    ("broker_key", "text", "attribute", "value"),
    [
        ("message.max.bytes", "77", "max_message_bytes", 77),
        ("min.insync.replicas", "2", "min_insync_replicas", 2),
        ("log.roll.hours", "1", "segment_ms", 3_600_000),
        ("log.flush.scheduler.interval.ms", "9", "flush_ms", 9),
        ("log.cleaner.min.cleanable.ratio", "0.25", "min_cleanable_dirty_ratio", 0.25),
        ("log.message.timestamp.type", "LogAppendTime", "message_timestamp_type", "LogAppendTime"),
        ("unclean.leader.election.enable", "true", "unclean_leader_election_enable", True),
        ("tidelog.fsync.before.ack", "false", "tidelog_fsync_before_ack", "false"),
    ],
)
def test_broker_keys_are_the_defaults_of_topics(broker_key: str, text: str, attribute: str, value: object) -> None:
    assert getattr(resolve_topic_config(BrokerConfig.parse({broker_key: text}), {}), attribute) == value


def test_tests_may_have_segments_smaller_than_users() -> None:
    config = resolve_topic_config(BrokerConfig.parse({}), {"internal.segment.bytes": "1000"})
    assert config.segment_bytes == 1000


def test_a_stored_value_that_is_no_longer_allowed_does_not_keep_the_topic_from_opening() -> None:
    config = resolve_topic_config(BrokerConfig.parse({}), {"segment.bytes": "5", "some.day": "1"})
    assert config == TopicConfig()
