from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from scripted_broker import HANG_UP, SILENCE, ScriptedBroker

from tidelog.client.config import ClientConfig
from tidelog.client.connection import Connection
from tidelog.client.errors import BadReply, ConnectionLost, NotSupported
from tidelog.net.address import Address
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

CONFIG = ClientConfig(request_timeout_ms=5000)


async def connect(broker: ScriptedBroker, config: ClientConfig = CONFIG) -> Connection:
    return await Connection.open(Address("127.0.0.1", broker.port), config)


def test_it_opens_with_the_newest_version_and_says_who_it_is() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            connection = await connect(broker)
            (hello,) = broker.requests(ApiVersionsRequest)
            assert hello.client_software_name == "tidelog-python"
            assert broker.versions[ApiVersionsRequest] == [ApiVersionsRequest.VERSIONS.last]
            assert connection.offered[MetadataRequest.API] == (0, MetadataRequest.VERSIONS.last)
            await connection.close()
            assert connection.closed

    asyncio.run(scenario())


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_an_older_broker_is_asked_again_in_a_version_it_knows(newest: int) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.offered[ApiVersionsRequest.API] = (0, newest)
            connection = await connect(broker)
            assert broker.versions[ApiVersionsRequest] == [newest]
            assert connection.version_of(MetadataRequest) == MetadataRequest.VERSIONS.last
            await connection.close()

    asyncio.run(scenario())


def test_each_request_goes_out_in_the_newest_common_version() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            broker.offered[MetadataRequest.API] = (0, 5)
            connection = await connect(broker)
            await connection.send(MetadataRequest(topics=None), MetadataResponse)
            await connection.send(MetadataRequest(topics=None), MetadataResponse, limit=2)
            assert broker.versions[MetadataRequest] == [5, 2]
            del connection.offered[MetadataRequest.API]
            with pytest.raises(NotSupported):
                await connection.send(MetadataRequest(topics=None), MetadataResponse)
            await connection.close()

    asyncio.run(scenario())


def test_requests_are_pipelined_and_answered_in_order() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({f"t{number}": 1 for number in range(20)}) as broker:
            connection = await connect(broker)
            asked = [f"t{number}" for number in range(20)]
            replies = await asyncio.gather(*(connection.send(request_for(name), MetadataResponse) for name in asked))
            assert [reply.topics[0].name for reply in replies] == asked
            await connection.close()

    asyncio.run(scenario())


def request_for(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


def test_a_hang_up_fails_what_is_outstanding() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _request, _before: HANG_UP)
            connection = await connect(broker)
            with pytest.raises(ConnectionLost, match="closed the connection"):
                await connection.send(MetadataRequest(topics=None), MetadataResponse)
            assert connection.closed

    asyncio.run(scenario())


def test_a_broker_that_does_not_answer_is_given_up() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _request, _before: SILENCE)
            connection = await connect(broker)
            with pytest.raises(ConnectionLost, match=r"did not reply within 0\.05 s"):
                await connection.send(MetadataRequest(topics=None), MetadataResponse, timeout_ms=50)
            assert connection.closed, "what holds one reply up holds up all behind it"

    asyncio.run(scenario())


def test_nobody_there_is_a_connection_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]

    async def scenario() -> None:
        with pytest.raises(ConnectionLost, match="refused the connection"):
            await Connection.open(Address("127.0.0.1", port), CONFIG)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "complaint"),
    [(b"", "is it a Kafka broker"), (b"\0\0\xff\xff\xff\xff\x7f", "cannot be read")],
)
def test_an_answer_that_is_none_is_a_bad_reply(body: bytes, complaint: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4), "big")
        request = await reader.readexactly(length)
        writer.write(struct.pack(">i", 4 + len(body)) + request[4:8] + body)
        await reader.read()
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(BadReply, match=complaint):
                await Connection.open(Address("127.0.0.1", port), CONFIG)

    asyncio.run(scenario())


def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            connection = await connect(broker)
            waiting = asyncio.ensure_future(connection.send(request_for("t"), MetadataResponse))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            reply = await connection.send(request_for("t"), MetadataResponse)
            assert reply.topics[0].name == "t"
            await connection.close()

    asyncio.run(scenario())
