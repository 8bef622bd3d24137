"""Brokers reach each other by lines that both ends have proved."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tidelog.broker import coordination
from tidelog.broker.app import Broker
from tidelog.broker.peer_line import PeerLine
from tidelog.broker.peers import Peers
from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.errors import ErrorCode, PeerUnreachable
from tidelog.handlers import HANDLERS
from tidelog.net.address import Address
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.znodes.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tidelog.wire.declare import Message

SERVED = {handler.api: handler for handler in HANDLERS}
SECRET = b"\x07" * 32
TIMEOUT_S = 30.0
ASK = DescribeClusterRequest(include_cluster_authorized_operations=False)


@asynccontextmanager
async def broker_at(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Address]:
    async def known(_znodes: object) -> bytes:
        return SECRET

    monkeypatch.setattr(coordination, "cluster_secret", known)
    config = BrokerConfig.parse({"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"})
    async with Broker(config) as broker:
        yield Address("127.0.0.1", broker.endpoints.bound[0].port)


def test_a_broker_of_the_cluster_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with broker_at(tmp_path, monkeypatch) as address:
            line = PeerLine(address, 2, SECRET, "test", TIMEOUT_S)
            replies = await asyncio.gather(*(line.send(ASK, DescribeClusterResponse) for _ in range(20)))
            assert {reply.controller_id for reply in replies} == {replies[0].controller_id}
            await line.close()
            again = await line.send(ASK, DescribeClusterResponse)
            assert again.cluster_id == replies[0].cluster_id
            await line.close()

    asyncio.run(scenario())


def test_who_does_not_know_the_secret_is_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with broker_at(tmp_path, monkeypatch) as address:
            line = PeerLine(address, 2, b"wrong" * 8, "test", TIMEOUT_S)
            with pytest.raises(PeerUnreachable, match="another cluster"):
                await line.send(ASK, DescribeClusterResponse)

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
def test_a_client_that_asks_for_sasl_is_told_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    async def scenario() -> None:
        async with broker_at(tmp_path, monkeypatch) as address:
            line = PeerLine(address, 2, SECRET, "test", TIMEOUT_S)
            refused = await line.send(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
            assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
            token = SaslAuthenticateRequest(auth_bytes=b"x" * 36)
            reply = await line.send(token, SaslAuthenticateResponse)
            assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
            await line.close()

    asyncio.run(scenario())


def test_a_broker_that_moved_is_found_at_its_new_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(_request: Message) -> Message:
        raise AssertionError("nothing goes to this broker itself")

    async def scenario() -> None:
        places: dict[int, Address] = {}
        peers = Peers(1, SECRET, SERVED, places.get, nobody)
        send = peers.sender("test", TIMEOUT_S)
        with pytest.raises(PeerUnreachable, match="not in the cluster"):
            await send(2, ASK)
        for life in ("first", "second"):
            async with broker_at(tmp_path / life, monkeypatch) as places[2]:
                assert (await send(2, ASK)).error_code == 0
        with pytest.raises(PeerUnreachable):
            await send(2, ASK)
        await peers.close()

    asyncio.run(scenario())


def test_who_waits_for_a_broker_that_hangs_is_told_when_the_cluster_counts_it_out() -> None:
    """It takes connections, as a stopped process does, and answers nothing."""

    async def nobody(_request: Message) -> Message:
        raise AssertionError("nothing goes to this broker itself")

    async def scenario() -> None:
        asked = asyncio.Event()
        hangs = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            asked.set()
            await hangs.wait()
            writer.close()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        places = {2: Address("127.0.0.1", server.sockets[0].getsockname()[1])}
        peers = Peers(1, SECRET, SERVED, places.get, nobody)
        waiting = asyncio.ensure_future(peers.sender("test", 3600.0)(2, ASK))
        await asked.wait()
        peers.hang_up_on_absent()
        await asyncio.sleep(0)
        assert not waiting.done(), "it is there"
        del places[2]
        peers.hang_up_on_absent()
        with pytest.raises(PeerUnreachable):
            await asyncio.wait_for(waiting, TIMEOUT_S)
        await peers.close()
        hangs.set()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())


def test_the_secret_is_made_once(tmp_path: Path) -> None:

    async def secret() -> bytes:
        store = await open_embedded(tmp_path / "coordination.sqlite", SystemClock())
        try:
            return await coordination.cluster_secret(store)
        finally:
            await store.close()

    first = asyncio.run(secret())
    assert len(first) == 32
    assert asyncio.run(secret()) == first
