"""What a client does when a broker wants to be left alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from scripted_broker import Misdeed, ScriptedBroker

from tidelog.client import Admin
from tidelog.client.config import ClientConfig
from tidelog.client.connection import Connection
from tidelog.client.errors import ConnectionLost
from tidelog.client.metrics import Counters
from tidelog.client.throttling import Quiet, rest_s
from tidelog.net.address import Address
from tidelog.wire.api_keys import ApiKey
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from tidelog.wire.declare import Message


@pytest.mark.parametrize(
    ("api", "version", "throttle_time_ms", "expected_s"),
    [
        (ApiKey.PRODUCE, 6, 250, 0.25),
        (ApiKey.PRODUCE, 5, 250, 0.0),  # it was answered late, which is rest enough
        (ApiKey.FETCH, 8, 1000, 1.0),
        (ApiKey.FETCH, 7, 1000, 0.0),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, 10, 0.01),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 10, 0.01),
        (ApiKey.SASL_HANDSHAKE, 1, 10, 0.0),
        (ApiKey.METADATA, 12, 0, 0.0),
        (ApiKey.METADATA, 12, -1, 0.0),
        (ApiKey.METADATA, 12, 2**31 - 1, 60.0),
        (2000, 0, 10, 0.01),
    ],
)
def test_how_long_a_broker_is_left_alone(api: int, version: int, throttle_time_ms: int, expected_s: float) -> None:
    assert rest_s(api, version, throttle_time_ms) == expected_s


def test_the_longest_rest_counts_and_ends() -> None:
    quiet, begun = Quiet(), []
    quiet.told(0.0, now_s=1.0)
    begun.append(quiet.begun)
    quiet.told(2.0, now_s=1.0)
    quiet.told(0.5, now_s=2.0)
    begun.append(quiet.begun)
    assert quiet.wait_s(2.0) == 1.0
    assert quiet.wait_s(3.0) == 0.0
    begun.append(quiet.begun)
    assert begun == [False, True, False]


def asking(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def busy(broker: ScriptedBroker, rest_ms: int) -> None:
    """The first answer about topics asks for a rest."""

    def react(request: MetadataRequest, _before: int) -> Message | Misdeed | None:
        first = [topic.name for topic in request.topics or ()] == ["first"]
        return MetadataResponse(throttle_time_ms=rest_ms, brokers=[], topics=[]) if first else None

    broker.on(MetadataRequest, react)


async def connect(broker: ScriptedBroker, counters: Counters | None = None) -> Connection:
    return await Connection.open(Address("127.0.0.1", broker.port), ClientConfig(), counters=counters)


def test_nothing_is_sent_meanwhile_and_then_everything_in_order() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            busy(broker, rest_ms=80)
            counters = Counters()
            connection = await connect(broker, counters)
            await connection.send(asking("first"), MetadataResponse)
            began_s = asyncio.get_running_loop().time()
            sent = [asyncio.create_task(connection.send(asking(f"{number}"), MetadataResponse)) for number in range(9)]
            await sent[0]
            assert asyncio.get_running_loop().time() - began_s >= 0.07
            sent.append(asyncio.create_task(connection.send(asking("9"), MetadataResponse)))
            await asyncio.gather(*sent)
            asked = [topic.name for request in broker.requests(MetadataRequest) for topic in request.topics or ()]
            assert asked == ["first", *map(str, range(10))]
            metrics = counters.snapshot(1)
            assert (metrics.throttles, metrics.throttled_ms) == (1, 80)
            await connection.close()

    asyncio.run(scenario())


def test_other_connections_go_on() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            busy(broker, rest_ms=3_600_000)
            resting, other = await connect(broker), await connect(broker)
            await resting.send(asking("first"), MetadataResponse)
            waiting = asyncio.create_task(resting.send(asking("later"), MetadataResponse))
            await other.send(asking("other"), MetadataResponse)
            assert not waiting.done()
            await resting.close()
            with pytest.raises(ConnectionLost):
                await waiting
            await other.close()

    asyncio.run(scenario())


def test_whoever_waits_learns_that_the_broker_is_gone() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            busy(broker, rest_ms=3_600_000)
            connection = await connect(broker)
            await connection.send(asking("first"), MetadataResponse)
            waiting = asyncio.create_task(connection.send(asking("later"), MetadataResponse))
        with pytest.raises(ConnectionLost):
            await waiting

    asyncio.run(scenario())


def test_clients_count_it() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.on(
                MetadataRequest, lambda _request, _before: MetadataResponse(throttle_time_ms=1, brokers=[], topics=[])
            )
            async with Admin(broker.bootstrap) as admin:
                await admin.list_topics()
                assert admin.metrics().throttles == admin.metrics().throttled_ms == 2

    asyncio.run(scenario())
