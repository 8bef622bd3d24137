"""BrokerConfig: defaults, fallbacks, layers, and everything that is wrong said at once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError, ConfigSource
from tidelog.config.keys import BROKER_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping


def problems_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.parse(properties)
    return refusal.value.problems


def test_a_broker_needs_no_settings() -> None:
    config = BrokerConfig.parse({})
    assert (config.broker_id, config.node_id) == (0, 0)
    assert config.log_dirs == ("tidelog-data",)
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable is True
    assert config.default_replication_factor == 1
    assert config.log_retention_ms == 7 * 24 * 3600 * 1000
    assert config.tidelog_fsync_before_ack == "auto"
    assert config.alone


def test_internal_topics_have_one_replica_only_where_there_is_one_broker() -> None:
    alone = BrokerConfig.parse({})
    assert alone.offsets_topic_replication_factor == 1
    assert alone.transaction_state_log_replication_factor == 1
    assert alone.transaction_state_log_min_isr == 1
    member = BrokerConfig.parse({"zookeeper.connect": "zk:2181"})
    assert member.offsets_topic_replication_factor == 3
    assert member.transaction_state_log_replication_factor == 3
    assert member.transaction_state_log_min_isr == 2


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.minutes": "0"}, 0),
    ],
)
def test_the_finer_unit_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.parse(properties).log_retention_ms == retention_ms


def test_other_fallbacks() -> None:
    config = BrokerConfig.parse({"log.dir": "/a", "log.roll.hours": "1", "zookeeper.session.timeout.ms": "7"})
    assert config.log_dirs == ("/a",)
    assert config.log_roll_ms == 3_600_000
    assert config.zookeeper_connection_timeout_ms == 7
    assert BrokerConfig.parse({"log.dir": "/a", "log.dirs": "/b,/c"}).log_dirs == ("/b", "/c")


def test_node_id_and_broker_id_are_one_number() -> None:
    for properties in ({"node.id": "7"}, {"broker.id": "7"}, {"node.id": "7", "broker.id": "7"}):
        config = BrokerConfig.parse(properties)
        assert (config.node_id, config.broker_id) == (7, 7)
    assert "differ" in problems_of({"node.id": "7", "broker.id": "8"})[0]


def test_all_problems_come_together() -> None:
    problems = problems_of(
        {
            "num.partitions": "0",
            "log.segment.bytes": "much",
            "listeners": "nonsense",
            "group.min.session.timeout.ms": "9",
            "group.max.session.timeout.ms": "8",
        }
    )
    assert len(problems) == 4
    assert any("num.partitions" in problem and "at least 1" in problem for problem in problems)
    assert any("log.segment.bytes" in problem for problem in problems)
    assert any("nonsense" in problem for problem in problems)
    assert any("group.min.session.timeout.ms=9 must not be greater" in problem for problem in problems)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"log.dirs": "/a,/a"}, "each directory once"),
        ({"log.dirs": "/a,,/b"}, "each directory once"),
        ({"broker.id": "-1"}, "broker.id=-1 needs zookeeper.connect"),
        ({"default.replication.factor": "3"}, "Set it to 1, or set zookeeper.connect"),
        ({"offsets.topic.replication.factor": "3"}, "Set it to 1, or set zookeeper.connect"),
        ({"tidelog.fsync.before.ack": "maybe"}, "must be one of auto, true, false"),
        ({"ssl.key.password": "x", "num.partitions": ""}, "must be a whole number"),
    ],
)
def test_refusals(properties: dict[str, str], said: str) -> None:
    (problem,) = problems_of(properties)
    assert said in problem


def test_a_broker_id_can_be_left_to_zookeeper() -> None:
    assert BrokerConfig.parse({"broker.id": "-1", "zookeeper.connect": "zk:2181"}).broker_id == -1


def test_unknown_keys_are_warned_about_with_a_suggestion() -> None:
    config = BrokerConfig.parse({"log.retention.hour": "1", "listeners": "PLAINTEXT://h:1"})
    assert config.warnings == (
        "Unknown configuration log.retention.hour is ignored. Did you mean log.retention.hours?",
    )


def test_keys_that_only_kafka_needs_are_named_in_one_warning() -> None:
    config = BrokerConfig.parse(
        {
            "listeners": "PLAINTEXT://h:1",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "controller.quorum.voters": "1@h:9093",
        }
    )
    assert config.warnings == (
        "These keys of Kafka have no effect in Tidelog: controller.quorum.voters, num.io.threads, num.network.threads.",
    )


def test_keys_of_older_kafka_say_what_took_their_place() -> None:
    (warning,) = BrokerConfig.parse({"listeners": "PLAINTEXT://h:1", "port": "9092"}).warnings
    assert warning == "port is no longer a key. Use listeners."


def test_listener_overrides() -> None:
    config = BrokerConfig.parse(
        {
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.internal.plain.sasl.jaas.config": "x",
        }
    )
    assert config.listener_value("internal", "ssl.client.auth") == "required"
    assert config.listener_value("PLAINTEXT", "ssl.client.auth") == "none"
    assert config.listener_value("INTERNAL.PLAIN", "sasl.jaas.config") == "x"
    (problem,) = problems_of({"listener.name.internal.ssl.client.auth": "perhaps"})
    assert "listener.name.internal.ssl.client.auth" in problem


def test_it_cannot_be_changed_in_place() -> None:
    config = BrokerConfig.parse({})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_partitions = 2  # type: ignore[misc]


def test_its_text_form_shows_no_secret() -> None:
    config = BrokerConfig.parse({"ssl.key.password": "hunter2", "num.partitions": "3", "unknown.secret": "hunter2"})
    assert "hunter2" not in repr(config)
    assert "'num.partitions': '3'" in repr(config)


def test_dynamic_layers_stand_over_the_static_one_and_the_broker_over_the_cluster() -> None:
    static = BrokerConfig.parse({"message.max.bytes": "1"})
    cluster = static.with_dynamic(default={"message.max.bytes": "2"}, broker={})
    own = static.with_dynamic(default={"message.max.bytes": "2"}, broker={"message.max.bytes": "3"})
    assert [config.message_max_bytes for config in (static, cluster, own)] == [1, 2, 3]
    assert list(own.layers.settings_of("message.max.bytes")) == [
        (ConfigSource.DYNAMIC_BROKER, "3"),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, "2"),
        (ConfigSource.STATIC_BROKER, "1"),
    ]
    back = own.with_dynamic(default={}, broker={})
    assert back.message_max_bytes == 1


def test_the_given_properties_may_change_afterwards() -> None:
    properties = {"num.partitions": "3"}
    config = BrokerConfig.parse(properties)
    properties["num.partitions"] = "4"
    assert config.layers.static == {"num.partitions": "3"}


@given(st.dictionaries(st.sampled_from(sorted(BROKER_KEYS)), st.text(max_size=12), max_size=6))
def test_any_values_parse_or_are_refused_with_a_config_error(properties: dict[str, str]) -> None:
    try:
        config = BrokerConfig.parse(properties)
    except ConfigError as refusal:
        assert refusal.problems  # noqa: PT017 - most values are refused, not all
    else:
        assert config.layers.static == properties
