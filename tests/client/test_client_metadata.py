from __future__ import annotations

from tidelog.client.metadata import ClusterMetadata
from tidelog.errors import ErrorCode
from tidelog.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)
ID_A, ID_B = b"a" * 16, b"b" * 16


def partition(index: int, leader: int, epoch: int = 0, error: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
    )


def reply(*partitions: MetadataResponsePartition, topic_id: bytes = ID_A, error: int = 0) -> MetadataResponse:
    topic = MetadataResponseTopic(error_code=error, name="t", topic_id=topic_id, partitions=list(partitions))
    brokers = [MetadataResponseBroker(node_id=node, host=f"host{node}", port=9092) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=2, topics=[topic])


def leader_after(*replies: MetadataResponse) -> int | None:
    metadata = ClusterMetadata()
    for each in replies:
        metadata = metadata.updated(each)
    node = metadata.leader_of(T0)
    return node.id if node is not None else None


def test_a_reply_says_who_leads() -> None:
    metadata = ClusterMetadata().updated(reply(partition(1, 1), partition(0, 2)))
    leader = metadata.leader_of(T0)
    assert leader is not None
    assert (leader.id, leader.host, leader.port) == (2, "host2", 9092)
    assert metadata.controller_id == 2
    assert [each.index for each in metadata.topics["t"].partitions] == [0, 1]
    assert metadata.topic_id("t") == ID_A


def test_nothing_is_known_of_the_unknown() -> None:
    metadata = ClusterMetadata()
    assert metadata.leader_of(T0) is None
    assert metadata.partition(T0) is None
    assert metadata.topic_id("t") == ZERO_TOPIC_ID


def test_a_leader_that_is_not_alive_is_none() -> None:
    assert leader_after(reply(partition(0, 7))) is None
    assert leader_after(reply(partition(0, -1, error=ErrorCode.LEADER_NOT_AVAILABLE))) is None


def test_a_deposed_leader_does_not_come_back() -> None:
    assert leader_after(reply(partition(0, 1, epoch=5)), reply(partition(0, 2, epoch=4))) == 1
    assert leader_after(reply(partition(0, 1, epoch=5)), reply(partition(0, 2, epoch=5))) == 2
    assert leader_after(reply(partition(0, 1, epoch=5)), reply(partition(0, 2, epoch=6))) == 2


def test_epochs_of_a_recreated_topic_begin_anew() -> None:
    assert leader_after(reply(partition(0, 1, epoch=5)), reply(partition(0, 2, epoch=0), topic_id=ID_B)) == 2


def test_brokers_without_epochs_are_believed() -> None:
    assert leader_after(reply(partition(0, 1, epoch=5)), reply(partition(0, 2, epoch=-1))) == 2


def test_an_error_replaces_what_was_known() -> None:
    metadata = ClusterMetadata().updated(reply(partition(0, 1, epoch=5)))
    metadata = metadata.updated(reply(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert metadata.topics["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata.leader_of(T0) is None


def test_topics_that_a_reply_does_not_mention_stay() -> None:
    metadata = ClusterMetadata().updated(reply(partition(0, 1)))
    other = MetadataResponseTopic(error_code=0, name="other", partitions=[])
    metadata = metadata.updated(MetadataResponse(brokers=[], topics=[other]))
    assert set(metadata.topics) == {"t", "other"}
    assert set(metadata.without(["t"]).topics) == {"other"}


def test_a_partition_is_found_by_its_index_when_others_are_left_out() -> None:
    topic = ClusterMetadata().updated(reply(partition(4, 1), partition(2, 1))).topics["t"]
    found = topic.partition(4)
    assert found is not None
    assert found.index == 4
    assert topic.partition(0) is None
    assert topic.partition(9) is None


def test_an_error_code_from_the_future_is_an_unknown_one() -> None:
    metadata = ClusterMetadata().updated(reply(error=9999))
    assert metadata.topics["t"].error == ErrorCode.UNKNOWN_SERVER_ERROR
