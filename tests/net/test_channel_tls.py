"""Channels inside TLS: the same requests and replies, and brokers that must not be believed."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import TYPE_CHECKING

import pytest
from certificates import Authority

from tidelog.net.channel import Channel, ChannelClosed, ConnectError, TlsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Scenario = Callable[[int], Awaitable[None]]

LONG_S = 1e6


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def server_context(authority: Authority, names: str, *, wants_certificate: bool = False) -> ssl.SSLContext:
    made = authority.issue("broker", names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certfile, made.keyfile)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certfile)
    return context


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Replies to each request with its own body."""
    try:
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(length)
            writer.write(struct.pack(">i", length - 4) + request[4:])
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


def against(context: ssl.SSLContext | None, scenario: Scenario) -> None:
    async def run() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
        async with server:
            await scenario(server.sockets[0].getsockname()[1])

    asyncio.run(run())


def test_large_and_small_go_both_ways(authority: Authority) -> None:
    async def scenario(port: int) -> None:
        tls = ssl.create_default_context(cafile=str(authority.certfile))
        async with await Channel.connect("127.0.0.1", port, tls=tls, in_flight_max=3) as channel:
            bodies = [b"x" * size for size in (0, 1, 100_000, 3_000_000, 5)]
            requests = [struct.pack(">hhi", 18, 4, at) + body for at, body in enumerate(bodies)]
            replies = await asyncio.gather(*(channel.request(each, timeout_s=LONG_S) for each in requests))
            assert [bytes(reply) for reply in replies] == [each[4:] for each in requests]
        with pytest.raises(ChannelClosed):
            await channel.request(requests[0], timeout_s=LONG_S)

    against(server_context(authority, "IP:127.0.0.1"), scenario)


def test_a_stranger_s_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    async def scenario(port: int) -> None:
        tls = ssl.create_default_context(cafile=str(authority.certfile))
        with pytest.raises(TlsError, match="not trusted"):
            await Channel.connect("127.0.0.1", port, tls=tls)

    against(server_context(Authority(tmp_path), "IP:127.0.0.1"), scenario)


def test_a_certificate_for_another_host_is_refused_unless_that_does_not_matter(authority: Authority) -> None:
    async def scenario(port: int) -> None:
        tls = ssl.create_default_context(cafile=str(authority.certfile))
        with pytest.raises(TlsError, match="names the host"):
            await Channel.connect("127.0.0.1", port, tls=tls)
        tls.check_hostname = False
        async with await Channel.connect("127.0.0.1", port, tls=tls) as channel:
            assert not channel.closed

    against(server_context(authority, "DNS:elsewhere.example"), scenario)


def test_a_listener_without_tls_is_told_apart(authority: Authority) -> None:
    async def scenario(port: int) -> None:
        tls = ssl.create_default_context(cafile=str(authority.certfile))
        with pytest.raises(ConnectError, match="listen for TLS"):
            await Channel.connect("127.0.0.1", port, tls=tls)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        async with server:
            await scenario(server.sockets[0].getsockname()[1])

    asyncio.run(run())


def test_a_broker_that_wants_to_know_the_client_gets_its_certificate(authority: Authority) -> None:
    async def scenario(port: int) -> None:
        tls = ssl.create_default_context(cafile=str(authority.certfile))
        request = struct.pack(">hhi", 18, 4, 7)
        with pytest.raises((ChannelClosed, ConnectError)):  # with TLS 1.3 only what follows tells
            await (await Channel.connect("127.0.0.1", port, tls=tls)).request(request, timeout_s=LONG_S)
        made = authority.issue("client")
        tls.load_cert_chain(made.certfile, made.keyfile)
        async with await Channel.connect("127.0.0.1", port, tls=tls) as channel:
            assert bytes(await channel.request(request, timeout_s=LONG_S)) == request[4:]

    against(server_context(authority, "IP:127.0.0.1", wants_certificate=True), scenario)
