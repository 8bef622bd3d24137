from __future__ import annotations

import asyncio
import socket

import pytest
from scripted_broker import HANG_UP, ScriptedBroker

from tidelog.client.backoff import Deadline
from tidelog.client.cluster import Cluster
from tidelog.client.config import ClientConfig
from tidelog.client.errors import BrokersUnreachable, Closed, ConnectionLost, TimedOut
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import BrokerId, TopicPartition, new_topic_id
from tidelog.wire.messages.metadata import MetadataRequest

QUICK = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=2, request_timeout_ms=5000)
T0 = TopicPartition("t", 0)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_addresses_are_tried_in_turn() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({"t": 2}) as broker,
            Cluster(f"127.0.0.1:{unused_port()},{broker.bootstrap}", QUICK) as cluster,
        ):
            assert cluster.metadata.cluster_id == "scripted"
            assert (await cluster.topic("t")).name == "t"
            assert (await cluster.leader(T0)).port == broker.port

    asyncio.run(scenario())


def test_all_that_failed_are_named() -> None:
    ports = [unused_port(), unused_port()]

    async def scenario() -> None:
        with pytest.raises(BrokersUnreachable) as caught:
            async with Cluster([f"127.0.0.1:{port}" for port in ports], QUICK):
                pass
        assert [address for address, _ in caught.value.failures] == [f"127.0.0.1:{port}" for port in ports]
        assert all(str(port) in str(caught.value) for port in ports)

    asyncio.run(scenario())


def test_one_connection_serves_all_who_ask_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            asked = [cluster.connection(BrokerId(1)) for _ in range(10)]
            assert len(set(map(id, await asyncio.gather(*asked)))) == 1
            assert broker.connections == 2, "the one it began with, and the one to the leader"

    asyncio.run(scenario())


def test_a_lost_connection_is_opened_anew() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            first = await cluster.connection(BrokerId(1))
            await first.close()
            second = await cluster.connection(BrokerId(1))
            assert second is not first
            assert not second.closed

    asyncio.run(scenario())


def test_a_broker_that_is_gone_is_explained_with_its_advertised_address() -> None:
    async def scenario() -> None:
        peer = ScriptedBroker(node_id=2)
        peer.port = unused_port()
        async with ScriptedBroker() as broker:
            broker.peers.append(peer)
            async with Cluster(broker.bootstrap, QUICK) as cluster:
                with pytest.raises(ConnectionLost, match=f"advertised as 127.0.0.1:{peer.port}.*advertised.listeners"):
                    await cluster.connection(BrokerId(2))
                with pytest.raises(ConnectionLost, match="no longer part"):
                    await cluster.connection(BrokerId(3))

    asyncio.run(scenario())


def test_an_unknown_topic_is_refused_at_once_unless_it_may_be_created() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            with pytest.raises(BrokerError) as caught:
                await cluster.topic("new")
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert not any(request.allow_auto_topic_creation for request in broker.requests(MetadataRequest))
            broker.on(MetadataRequest, lambda _request, before: broker.topics.update(new=3) if before > 4 else None)
            broker.topic_ids["new"] = new_topic_id()
            assert len((await cluster.topic("new", create=True)).partitions) == 3
            assert broker.requests(MetadataRequest)[-1].allow_auto_topic_creation

    asyncio.run(scenario())


def test_known_topics_are_not_asked_for_again_until_they_are_old() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            first = await cluster.topic("t")
            asked = len(broker.requests(MetadataRequest))
            assert await cluster.topic("t") is first
            assert len(broker.requests(MetadataRequest)) == asked
        aging = ClientConfig(metadata_max_age_ms=0)
        async with ScriptedBroker({"t": 1}) as broker, Cluster(broker.bootstrap, aging) as cluster:
            await cluster.topic("t")
            asked = len(broker.requests(MetadataRequest))
            await cluster.topic("t")
            assert len(broker.requests(MetadataRequest)) == asked + 1

    asyncio.run(scenario())


def test_a_partition_without_a_leader_is_refused() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            broker.leaders[T0] = -1
            with pytest.raises(BrokerError) as caught:
                await cluster.leader(T0)
            assert caught.value.code == ErrorCode.LEADER_NOT_AVAILABLE
            with pytest.raises(BrokerError) as caught:
                await cluster.leader(TopicPartition("t", 9))
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


def test_retrying_ends_with_the_deadline_and_names_the_obstacle() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            tries = 0

            async def attempt() -> None:
                nonlocal tries
                tries += 1
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "it moved")

            with pytest.raises(TimedOut, match=r"moving did not succeed within 50 ms and \d+ attempts; last: it moved"):
                await cluster.retrying("moving", attempt, Deadline(50))
            assert tries > 1

    asyncio.run(scenario())


def test_what_cannot_succeed_is_not_retried() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, QUICK) as cluster:
            tries = 0

            async def attempt() -> None:
                nonlocal tries
                tries += 1
                raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS)

            with pytest.raises(BrokerError):
                await cluster.retrying("creating", attempt)
            assert tries == 1

    asyncio.run(scenario())


def test_it_recovers_when_its_first_broker_goes_away() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}, node_id=2) as second:
            async with ScriptedBroker(node_id=1) as first:
                first.peers.append(second)
                cluster = Cluster(first.bootstrap, QUICK)
                await cluster.start()
            await cluster.retrying("finding the other", lambda: cluster.refresh(["t"]))
            assert cluster.metadata.topics["t"].partitions
            await cluster.close()

    asyncio.run(scenario())


def test_closing_leaves_nothing_open() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            cluster = Cluster(broker.bootstrap, QUICK)
            await cluster.start()
            await cluster.connection(BrokerId(1))
            await cluster.close()
            with pytest.raises(Closed):
                await cluster.any_connection()
            await broker.all_gone()

    asyncio.run(scenario())


def test_a_start_that_fails_half_way_leaves_nothing_open() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _request, _before: HANG_UP)
            with pytest.raises(ConnectionLost):
                await Cluster(broker.bootstrap, QUICK).start()
            await broker.all_gone()

    asyncio.run(scenario())
