"""What DescribeConfigs is told."""

from __future__ import annotations

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigSource, ConfigType
from tidelog.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from tidelog.config.keys import BROKER_KEYS, TOPIC_KEYS

DEFAULT, STATIC = ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER
CLUSTER, BROKER, TOPIC = ConfigSource.DYNAMIC_DEFAULT_BROKER, ConfigSource.DYNAMIC_BROKER, ConfigSource.TOPIC


def topic_entry(config: BrokerConfig, overrides: dict[str, str], name: str) -> ConfigEntry:
    (entry,) = describe_topic(config, overrides, [name])
    return entry


def test_a_topic_default_comes_from_the_broker_default() -> None:
    entry = topic_entry(BrokerConfig.parse({}), {}, "max.message.bytes")
    assert (entry.value, entry.source, entry.type) == ("1048588", DEFAULT, ConfigType.INT)
    assert entry.is_default
    assert not entry.read_only
    assert entry.synonyms == (ConfigSynonym("message.max.bytes", "1048588", DEFAULT),)


def test_all_layers_of_a_topic_key_in_the_order_they_count() -> None:
    config = BrokerConfig.parse({"message.max.bytes": "1"}).with_dynamic(
        default={"message.max.bytes": "2"}, broker={"message.max.bytes": "3"}
    )
    entry = topic_entry(config, {"max.message.bytes": "4"}, "max.message.bytes")
    assert (entry.value, entry.source) == ("4", TOPIC)
    assert entry.synonyms == (
        ConfigSynonym("max.message.bytes", "4", TOPIC),
        ConfigSynonym("message.max.bytes", "3", BROKER),
        ConfigSynonym("message.max.bytes", "2", CLUSTER),
        ConfigSynonym("message.max.bytes", "1", STATIC),
        ConfigSynonym("message.max.bytes", "1048588", DEFAULT),
    )
    assert topic_entry(config, {}, "max.message.bytes")[:3] == ("max.message.bytes", "3", BROKER)


def test_retention_in_hours_is_told_in_milliseconds_with_its_source() -> None:
    entry = topic_entry(BrokerConfig.parse({"log.retention.hours": "1"}), {}, "retention.ms")
    assert (entry.value, entry.source) == ("3600000", STATIC)
    assert entry.synonyms == (
        ConfigSynonym("log.retention.hours", "1", STATIC),
        ConfigSynonym("log.retention.hours", "168", DEFAULT),
    )


def test_a_topic_key_without_a_broker_key() -> None:
    entry = topic_entry(BrokerConfig.parse({}), {}, "leader.replication.throttled.replicas")
    assert (entry.value, entry.source, entry.synonyms) == ("", DEFAULT, ())


def test_a_broker_describes_every_key_but_the_hidden_ones() -> None:
    names = {entry.name for entry in describe_broker(BrokerConfig.parse({}))}
    assert names == {name for name, definition in BROKER_KEYS.items() if not definition.hidden}
    topic_names = {entry.name for entry in describe_topic(BrokerConfig.parse({}), {})}
    assert topic_names == TOPIC_KEYS.keys() - {"internal.segment.bytes"}


def test_a_broker_key_and_unknown_names() -> None:
    config = BrokerConfig.parse({"num.partitions": "3"})
    (entry,) = describe_broker(config, ["num.partitions", "no.such.key"])
    assert (entry.value, entry.source, entry.read_only) == ("3", STATIC, True)


def test_secrets_are_not_told() -> None:
    config = BrokerConfig.parse({"ssl.key.password": "hunter2"})
    (entry,) = describe_broker(config, ["ssl.key.password"])
    assert (entry.value, entry.sensitive, entry.source) == (None, True, STATIC)
    assert "hunter2" not in repr(describe_broker(config))


def test_the_cluster_default_has_only_what_was_set_there() -> None:
    config = BrokerConfig.parse({"num.partitions": "3"}).with_dynamic(
        default={"message.max.bytes": "2"}, broker={"log.cleaner.threads": "2"}
    )
    (entry,) = describe_cluster_default(config)
    assert (entry.name, entry.value, entry.source) == ("message.max.bytes", "2", CLUSTER)
