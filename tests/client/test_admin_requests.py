"""Admin against a broker that misbehaves on purpose; against the real one see test_clients_against_broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from scripted_broker import HANG_UP, SILENCE, ScriptedBroker

from tidelog.client.admin import Admin
from tidelog.client.config import ClientConfig
from tidelog.client.descriptions import ConfigResource, NewTopic
from tidelog.client.errors import NotSupported
from tidelog.client.offsets import OffsetSpec
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.wire.declare import Message

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=2)


def test_several_topics_get_several_answers() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"there": 1}) as broker, Admin(broker.bootstrap, CONFIG) as admin:
            outcomes = await admin.create_topics([NewTopic("new", 3, configs={"k": "v"}), NewTopic("there")])
            created, refused = outcomes["new"], outcomes["there"]
            assert not isinstance(created, BrokerError)
            assert (created.partitions, created.replication_factor) == (3, 1)
            assert isinstance(refused, BrokerError)
            assert (refused.code, str(refused)) == (ErrorCode.TOPIC_ALREADY_EXISTS, "topic there: it exists")
            (request,) = broker.requests(CreateTopicsRequest)
            assert [(config.name, config.value) for config in request.topics[0].configs] == [("k", "v")]

    asyncio.run(scenario())


def test_replicas_can_be_placed_by_hand() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Admin(broker.bootstrap, CONFIG) as admin:
            await admin.create_topics([NewTopic("new", 3, 3, assignments=[[1, 2], [2, 1]])])
            topic = broker.requests(CreateTopicsRequest)[0].topics[0]
            assert (topic.num_partitions, topic.replication_factor) == (-1, -1), "counts and places exclude each other"
            assert [(each.partition_index, each.broker_ids) for each in topic.assignments] == [(0, [1, 2]), (1, [2, 1])]

    asyncio.run(scenario())


def test_a_silent_controller_leaves_time_to_ask_another() -> None:
    async def scenario() -> None:
        config = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=2, request_timeout_ms=100)
        assert ClientConfig().request_timeout_ms * 2 <= ClientConfig().default_api_timeout_ms
        async with ScriptedBroker() as broker, Admin(broker.bootstrap, config) as admin:
            broker.on(CreateTopicsRequest, lambda _request, before: None if before else SILENCE)
            await admin.create_topic("new")
            first, second = broker.requests(CreateTopicsRequest)
            assert first.timeout_ms == second.timeout_ms == 50, "so that it answers before it is given up"

    asyncio.run(scenario())


def test_the_controller_is_looked_for_until_it_is_found() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Admin(broker.bootstrap, CONFIG) as admin:

            def not_yet(request: CreateTopicsRequest, before: int) -> Message | None:
                if before >= 2:
                    return None
                code = ErrorCode.NOT_CONTROLLER
                results = [
                    CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
                    for topic in request.topics
                ]
                return CreateTopicsResponse(throttle_time_ms=0, topics=results)

            broker.on(CreateTopicsRequest, not_yet)
            assert (await admin.create_topic("new", partitions=2)).partitions == 2
            assert len(broker.requests(CreateTopicsRequest)) == 3

    asyncio.run(scenario())


def test_a_lost_connection_is_no_reason_to_give_up() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Admin(broker.bootstrap, CONFIG) as admin:
            broker.on(CreateTopicsRequest, lambda _request, before: HANG_UP if before == 0 else None)
            await admin.create_topic("new")
            assert "new" in broker.topics

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [1, 5, 6])
def test_topics_are_deleted_in_every_version(version: int) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Admin(broker.bootstrap, CONFIG) as admin:
            broker.offered[DeleteTopicsRequest.API] = (1, version)
            # The connection agreed on versions before they were changed.
            (await admin._cluster.controller()).offered[DeleteTopicsRequest.API] = (1, version)
            await admin.delete_topic("t")
            assert broker.topics == {}
            with pytest.raises(BrokerError) as caught:
                await admin.delete_topic("t")
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert broker.versions[DeleteTopicsRequest] == [version, version]

    asyncio.run(scenario())


def test_topics_are_listed_by_name_and_described() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"b": 2, "a": 1}) as broker, Admin(broker.bootstrap, CONFIG) as admin:
            assert [topic.name for topic in await admin.list_topics()] == ["a", "b"]
            described = await admin.describe_topic("b")
            assert described.topic_partitions == [TopicPartition("b", 0), TopicPartition("b", 1)]
            assert described.replication_factor == 1
            del broker.topics["b"]
            assert [topic.name for topic in await admin.list_topics()] == ["a"], "a deleted topic is forgotten"
            with pytest.raises(BrokerError, match="topic b"):
                await admin.describe_topic("b")

    asyncio.run(scenario())


def test_only_the_partitions_that_failed_are_asked_again() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 2}) as broker, Admin(broker.bootstrap, CONFIG) as admin:

            def half(request: ListOffsetsRequest, before: int) -> Message | None:
                if before > 0:
                    return None
                code = ErrorCode.LEADER_NOT_AVAILABLE
                answers = [
                    ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=42),
                    ListOffsetsPartitionResponse(partition_index=1, error_code=code),
                ]
                topics = [ListOffsetsTopicResponse(name=request.topics[0].name, partitions=answers)]
                return ListOffsetsResponse(topics=topics)

            broker.on(ListOffsetsRequest, half)
            wanted = {TopicPartition("t", index): OffsetSpec.latest() for index in range(2)}
            found = await admin.list_offsets(wanted)
            assert [each.offset for each in found.values() if each is not None] == [42, 0]
            second = broker.requests(ListOffsetsRequest)[1]
            assert [partition.partition_index for partition in second.topics[0].partitions] == [1]

    asyncio.run(scenario())


def test_an_old_broker_is_asked_in_the_old_way() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Admin(broker.bootstrap, CONFIG) as admin:
            described = await admin.describe_cluster()  # which it does not offer
            assert (described.cluster_id, described.controller_id) == ("scripted", 1)
            assert [node.port for node in described.brokers] == [broker.port]

    asyncio.run(scenario())


def test_what_an_old_broker_cannot_be_told_is_not_left_out_in_silence() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.offered[ListOffsetsRequest.API] = (1, 1)
            async with Admin(broker.bootstrap, CONFIG) as admin:
                wanted = {TopicPartition("t", 0): OffsetSpec.latest()}
                assert len(await admin.list_offsets(wanted)) == 1
                with pytest.raises(NotSupported, match=r"too old for this: .*isolation_level"):
                    await admin.list_offsets(wanted, committed_only=True)

    asyncio.run(scenario())


def test_resources_are_named_for_people() -> None:
    assert str(ConfigResource.of_topic("t")) == "topic t"
    assert str(ConfigResource.of_broker(3)) == "broker 3"
    assert ConfigResource.of_broker(3).broker == 3
    assert ConfigResource.of_broker().broker is None
    assert ConfigResource.of_topic("3").broker is None


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="milliseconds since 1970"):
        OffsetSpec.at_timestamp(-5)
