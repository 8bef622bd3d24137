"""Metadata: topics, ids, names, auto-creation, and the address a client is told to use."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from asking import (
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch_request,
    try_create_topic,
    try_fetch,
    try_produce,
)

from tidelog.errors import ErrorCode
from tidelog.testing import RawClient, eventually
from tidelog.types import new_topic_id
from tidelog.wire.declare import ZERO_UUID
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from tidelog.testing import BrokerProcess, StartBroker

NOT_ASKED_FOR = -(2**31)
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
"""Read, write, create, delete, alter, describe, describe configs and alter configs, by their numbers in Kafka."""

ILLEGAL_NAMES = ["", ".", "..", "a" * 250, "with space", "slash/ed", "back\\slash", "über", "new\nline", "colon:"]


def topic_names(client: RawClient, topics: list[MetadataRequestTopic] | None, version: int) -> set[str | None]:
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    return {entry.name for entry in client.call(request, version, MetadataResponse).topics}


@pytest.mark.parametrize("version", [1, 8, 9, 13])
def test_null_asks_for_all_topics_and_an_empty_list_for_none(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic)
    assert topic in topic_names(raw, None, version)
    assert topic_names(raw, [], version) == set()


def test_an_empty_list_asks_for_all_topics_in_version_0(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert topic in topic_names(raw, [], 0)


def test_partitions_have_a_leader_an_epoch_and_replicas(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=3)
    entry = describe(raw, topic)
    assert entry.error_code == ErrorCode.NONE
    assert not entry.is_internal
    assert [partition.partition_index for partition in entry.partitions] == [0, 1, 2]
    for partition in entry.partitions:
        assert partition.error_code == ErrorCode.NONE
        assert partition.leader_id == 0
        assert partition.leader_epoch >= 0
        assert partition.replica_nodes == [0]
        assert partition.isr_nodes == [0]
        assert partition.offline_replicas == []


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_topic_ids_are_never_zero(raw: RawClient, topic: str, version: int) -> None:
    topic_id = create_topic(raw, topic)
    assert topic_id != ZERO_UUID
    assert describe(raw, topic, version=version).topic_id == topic_id


@pytest.mark.parametrize("name", [None, ""], ids=["null", "empty"])
@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_is_found_by_its_id(raw: RawClient, topic: str, version: int, name: str | None) -> None:
    """Java sends an empty name with the id."""
    topic_id = create_topic(raw, topic)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=topic_id, name=name)], allow_auto_topic_creation=True
    )
    (entry,) = raw.call(request, version, MetadataResponse).topics
    assert (entry.error_code, entry.name, entry.topic_id) == (ErrorCode.NONE, topic, topic_id)


@pytest.mark.parametrize("name", [None, ""], ids=["null", "empty"])
def test_an_unknown_topic_id_is_refused_by_id(raw: RawClient, name: str | None) -> None:
    unknown = new_topic_id()
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=unknown, name=name)], allow_auto_topic_creation=True
    )
    (entry,) = raw.call(request, 12, MetadataResponse).topics
    assert (entry.error_code, entry.name, entry.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


def test_a_re_created_topic_has_another_id_and_the_old_one_is_unknown(raw: RawClient, topic: str) -> None:
    old = create_topic(raw, topic)
    assert delete_topic(raw, topic) == ErrorCode.NONE
    new = create_topic(raw, topic)
    assert new not in {old, ZERO_UUID}
    stale = try_produce(raw, "", batch_of([b"late"]), topic_id=old, version=13)
    assert stale.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    fetched = try_fetch(raw, fetch_request("", 0, topic_id=old), 13)
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert try_produce(raw, "", batch_of([b"current"]), topic_id=new, version=13).error_code == ErrorCode.NONE


def test_an_unknown_topic_is_created_when_broker_and_request_allow_it(raw: RawClient, topic: str) -> None:
    first = describe(raw, topic, auto_create=True)
    assert first.error_code in {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }

    def created() -> bool:
        entry = describe(raw, topic)
        return entry.error_code == ErrorCode.NONE and [part.leader_id for part in entry.partitions] == [0]

    eventually(created, f"topic {topic} to be created on first use")


def test_an_unknown_topic_is_not_created_when_the_request_forbids_it(raw: RawClient, topic: str) -> None:
    assert describe(raw, topic, auto_create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic not in topic_names(raw, None, 12)


def test_old_versions_cannot_forbid_creation(raw: RawClient, topic: str) -> None:
    describe(raw, topic, auto_create=True, version=3)
    eventually(lambda: describe(raw, topic).error_code == ErrorCode.NONE, f"topic {topic} to be created")


def test_an_unknown_topic_is_not_created_when_the_broker_forbids_it(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"auto.create.topics.enable": "false"})
    with RawClient(broker.port) as client:
        assert describe(client, "wanted", auto_create=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic_names(client, None, 12) == set()


def test_auto_created_topics_have_the_broker_s_number_of_partitions(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"num.partitions": "4"})
    with RawClient(broker.port) as client:
        describe(client, "wanted", auto_create=True)
        partitions = eventually(lambda: describe(client, "wanted").partitions or None, "the topic to be created")
        assert len(partitions) == 4


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
@pytest.mark.parametrize("auto_create", [False, True])
def test_an_illegal_topic_name_is_refused_by_metadata(raw: RawClient, name: str, auto_create: bool) -> None:
    entry = describe(raw, name, auto_create=auto_create)
    assert entry.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name not in topic_names(raw, None, 12)


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_an_illegal_topic_name_is_refused_by_create_topics(raw: RawClient, name: str) -> None:
    result = try_create_topic(raw, name)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message


def test_the_longest_legal_name_is_249_characters(raw: RawClient, topic: str) -> None:
    longest = topic + "." * (249 - len(topic))
    create_topic(raw, longest)
    assert describe(raw, longest).error_code == ErrorCode.NONE


def test_names_that_differ_only_in_dot_and_underscore_collide(raw: RawClient, topic: str) -> None:
    create_topic(raw, f"{topic}.x_y")
    result = try_create_topic(raw, f"{topic}_x.y")
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_controller_is_a_broker_of_the_list(raw: RawClient) -> None:
    reply = raw.call(MetadataRequest(topics=[]), 12, MetadataResponse)
    assert reply.controller_id in {node.node_id for node in reply.brokers}
    cluster = raw.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1, DescribeClusterResponse)
    assert cluster.error_code == ErrorCode.NONE
    assert cluster.controller_id == reply.controller_id
    assert cluster.cluster_id == reply.cluster_id
    assert cluster.cluster_id
    assert [(node.broker_id, node.host, node.port) for node in cluster.brokers] == [
        (node.node_id, node.host, node.port) for node in reply.brokers
    ]


def test_authorised_operations_are_int_min_unless_asked_for(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    topics = [MetadataRequestTopic(name=topic)]
    silent = raw.call(MetadataRequest(topics=topics), 10, MetadataResponse)
    assert silent.cluster_authorized_operations == NOT_ASKED_FOR
    assert silent.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    asked = raw.call(
        MetadataRequest(
            topics=topics, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
        ),
        10,
        MetadataResponse,
    )
    assert asked.cluster_authorized_operations > 0
    assert asked.topics[0].topic_authorized_operations == ALL_TOPIC_OPERATIONS
    cluster = raw.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1, DescribeClusterResponse)
    assert cluster.cluster_authorized_operations == NOT_ASKED_FOR


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def node_address(port: int) -> tuple[str, int]:
    with RawClient(port) as client:
        (node,) = client.call(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
        return node.host, node.port


def test_a_client_is_told_the_address_of_the_listener_it_came_by(fresh_broker: StartBroker) -> None:
    inside, outside = free_ports(2)
    fresh_broker(
        {
            "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "advertised.listeners": "INSIDE://broker.internal:19092,OUTSIDE://kafka.example.com:443",
        }
    )
    assert node_address(inside) == ("broker.internal", 19092)
    assert node_address(outside) == ("kafka.example.com", 443)


def test_a_listener_on_every_interface_is_advertised_with_a_name_that_works_here(fresh_broker: StartBroker) -> None:
    (port,) = free_ports(1)
    fresh_broker({"listeners": f"PLAINTEXT://:{port}"})
    host, advertised_port = node_address(port)
    assert advertised_port == port
    with RawClient(advertised_port, host) as client:
        assert client.call(MetadataRequest(topics=[]), 12, MetadataResponse).controller_id == 0


def test_the_advertised_address_is_the_one_the_broker_listens_on(broker: BrokerProcess) -> None:
    assert node_address(broker.port) == ("127.0.0.1", broker.port)
