"""The admin client of kafka-python."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from client_drivers import Sent
from confluent_driver import ConfluentDriver
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.testing import BrokerProcess


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def resource(topic: str, configs: object = None) -> Any:
    return ConfigResource(ConfigResourceType.TOPIC, topic, configs)


def setting(admin: Any, topic: str, key: str) -> Any:
    described = admin.describe_configs([resource(topic)], config_filter="all")
    return described[ConfigResourceType.TOPIC.name.lower()][topic][key]["value"]


def test_topics_are_created_listed_described_and_deleted(admin: Any, topic: str) -> None:
    wanted = {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "60000"}}
    created = admin.create_topics({topic: wanted})
    assert created["topics"][0]["num_partitions"] == 3
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2]
    pages = admin.describe_topic_partitions([topic], response_partition_limit=2)
    assert [partition["partition_index"] for partition in pages["topics"][0]["partitions"]] == [0, 1]
    assert pages["next_cursor"] == {"topic_name": topic, "partition_index": 2}
    rest = admin.describe_topic_partitions([topic], cursor=pages["next_cursor"])
    assert [partition["partition_index"] for partition in rest["topics"][0]["partitions"]] == [2]
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_what_cannot_be_created_is_refused_with_kafka_s_errors(admin: Any, topic: str) -> None:
    admin.create_topics([topic])
    with pytest.raises(kafka_errors.TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(kafka_errors.InvalidReplicationFactorError):
        admin.create_topics({f"{topic}-b": {"replication_factor": 3}})
    with pytest.raises(kafka_errors.InvalidTopicError):
        admin.create_topics(["not a name"])
    with pytest.raises(kafka_errors.UnknownTopicOrPartitionError):
        admin.delete_topics([f"{topic}-b"])


def test_topics_are_described_and_deleted_by_id(admin: Any, topic: str) -> None:
    admin.create_topics([topic])
    (by_name,) = admin.describe_topics([topic])
    topic_id = uuid.UUID(str(by_name["topic_id"]))
    (by_id,) = admin.describe_topics([topic_id])
    assert by_id["name"] == topic
    admin.delete_topics([topic_id])
    assert topic not in admin.list_topics()


def test_partitions_are_added(admin: Any, topic: str) -> None:
    admin.create_topics([topic])
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    with pytest.raises(kafka_errors.InvalidPartitionsError):
        admin.create_partitions({topic: 2})


def test_settings_are_changed_and_reset(admin: Any, topic: str) -> None:
    admin.create_topics({topic: {"configs": {"retention.ms": "60000"}}})
    admin.alter_configs([resource(topic, {"max.message.bytes": "2000"})], incremental=True)
    assert setting(admin, topic, "max.message.bytes") == "2000"
    assert setting(admin, topic, "retention.ms") == "60000"
    admin.reset_configs([resource(topic, ["max.message.bytes"])], incremental=True)
    assert setting(admin, topic, "max.message.bytes") == "1048588"
    admin.alter_configs([resource(topic, {"segment.bytes": "2000000"})], incremental=False)
    assert setting(admin, topic, "segment.bytes") == "2000000"


def test_the_cluster_is_described(admin: Any, bootstrap: str) -> None:
    cluster = admin.describe_cluster()
    assert cluster["controller_id"] == 0
    assert cluster["cluster_id"]
    assert [f"{node['host']}:{node['port']}" for node in cluster["brokers"]] == [bootstrap]


def test_log_dirs_are_described(admin: Any, topic: str, bootstrap: str, broker: BrokerProcess) -> None:
    admin.create_topics([topic])
    ConfluentDriver().write(bootstrap, topic, [Sent(bytes(1000))])
    (answer,) = admin.describe_log_dirs({topic: [0]})
    (directory,) = answer["log_dirs"]
    assert directory["log_dir"] == str(broker.data_dir)
    (entry,) = directory["topics"]
    assert entry["partitions"][0]["partition_size"] > 1000


def test_records_are_deleted(admin: Any, topic: str, bootstrap: str) -> None:
    admin.create_topics([topic])
    ConfluentDriver().write(bootstrap, topic, [Sent(b"%d" % number) for number in range(10)])
    place = TopicPartition(topic, 0)
    deleted = admin.delete_records({place: 4})
    assert deleted[place]["low_watermark"] == 4
    found = admin.list_partition_offsets({place: -2})
    assert found[place].offset == 4
