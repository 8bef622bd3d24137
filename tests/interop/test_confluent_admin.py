"""The admin client of confluent-kafka."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
from client_drivers import Sent
from confluent_driver import ConfluentDriver, assigned_consumer
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.testing import eventually

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tidelog.testing import StartBroker

# The library's annotations hide the classes that its documentation names.
api: Any = importlib.import_module("confluent_kafka.admin")
AlterConfigOpType, ConfigEntry, ConfigResource = api.AlterConfigOpType, api.ConfigEntry, api.ConfigResource
NewPartitions, NewTopic, ResourceType = api.NewPartitions, api.NewTopic, api.ResourceType

WAIT_S = 30


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def only(futures: dict[Any, Future[Any]]) -> Any:
    """The result of a request about one thing."""
    (future,) = futures.values()
    return future.result(WAIT_S)


def error_code(futures: dict[Any, Future[Any]]) -> int:
    with pytest.raises(KafkaException) as caught:
        only(futures)
    return caught.value.args[0].code()  # type: ignore[no-any-return]


def setting(admin: AdminClient, topic: str, key: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    value: str | None = only(admin.describe_configs([resource]))[key].value
    return value


def test_topics_are_created_listed_described_and_deleted(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "60000"})]))
    listed = admin.list_topics(timeout=WAIT_S).topics[topic]
    assert sorted(listed.partitions) == [0, 1, 2]
    assert [listed.partitions[index].leader for index in range(3)] == [0, 0, 0]
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert described.name == topic
    assert described.topic_id is not None
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert [node.id for node in described.partitions[0].isr] == [0]
    assert setting(admin, topic, "retention.ms") == "60000"
    only(admin.delete_topics([topic]))
    eventually(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "the topic to be gone")


def test_what_cannot_be_created_is_refused_with_kafka_s_codes(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    refusals = {
        KafkaError.TOPIC_ALREADY_EXISTS: NewTopic(topic, 1, 1),
        KafkaError.INVALID_REPLICATION_FACTOR: NewTopic(f"{topic}-b", 1, 3),
        KafkaError.INVALID_CONFIG: NewTopic(f"{topic}-c", 1, 1, config={"retention.ms": "never"}),
        KafkaError.TOPIC_EXCEPTION: NewTopic("not a name", 1, 1),
    }
    for code, wanted in refusals.items():
        assert error_code(admin.create_topics([wanted])) == code
    assert error_code(admin.delete_topics([f"{topic}-b"])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_creates_nothing(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


def test_partitions_are_added(admin: AdminClient, topic: str, bootstrap: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    only(admin.create_partitions([NewPartitions(topic, 4)]))
    assert len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 4
    assert error_code(admin.create_partitions([NewPartitions(topic, 2)])) == KafkaError.INVALID_PARTITIONS
    with assigned_consumer(bootstrap, topic, partition=3) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 3), timeout=WAIT_S) == (0, 0)


def test_settings_are_changed_one_by_one_and_hold_at_once(admin: AdminClient, topic: str, bootstrap: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "60000"})]))
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    only(admin.incremental_alter_configs([change]))
    assert setting(admin, topic, "max.message.bytes") == "2000"
    assert set(str(setting(admin, topic, "cleanup.policy")).split(",")) == {"compact", "delete"}
    assert setting(admin, topic, "retention.ms") == "604800000"
    with pytest.raises(AssertionError, match="size"):
        ConfluentDriver().write(bootstrap, topic, [Sent(bytes(5000), b"k")])
    ConfluentDriver().write(bootstrap, topic, [Sent(b"small", b"k")])


def test_settings_are_replaced_by_the_old_request(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "60000"})]))
    replacement = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "2000000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        only(admin.alter_configs([replacement]))
    assert setting(admin, topic, "segment.bytes") == "2000000"
    assert setting(admin, topic, "retention.ms") == "604800000"


def test_the_broker_s_settings_are_described(admin: AdminClient) -> None:
    described = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, "0")]))
    assert described["broker.id"].value == "0"
    assert described["message.max.bytes"].value == "1048588"
    assert described["message.max.bytes"].is_default
    assert described["broker.id"].is_read_only


def test_the_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(WAIT_S)
    assert cluster.cluster_id
    assert cluster.controller.id == 0
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]


def test_records_are_deleted(admin: AdminClient, topic: str, bootstrap: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    ConfluentDriver().write(bootstrap, topic, [Sent(b"%d" % number) for number in range(10)])
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    with assigned_consumer(bootstrap, topic, 4) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (4, 10)
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.offset() == 4


def test_a_topic_survives_a_restart_for_a_client_that_stays(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0})
    only(admin.create_topics([NewTopic("t", 2, 1)]))
    broker.restart()
    eventually(lambda: sorted(admin.list_topics(timeout=WAIT_S).topics["t"].partitions) == [0, 1], "the topic")
