from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
from typing import TYPE_CHECKING, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from net_ends import Peer, both_loops, framed, open_files, turns, until

from tidelog.net.channel import Channel, ChannelClosed, ConnectError, RequestTimedOut
from tidelog.net.receive_buffer import SCRATCH_BYTES

if TYPE_CHECKING:
    from net_ends import Run

LONG_S = 1e6


def request(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhi", 18, 4, correlation_id) + body


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">i", correlation_id) + body


class Broker:
    """The far end: a plain listening socket whose connections the test plays."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._sock.setblocking(False)
        self.port: int = self._sock.getsockname()[1]
        self.peers: list[Peer] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sock.close()
        for peer in self.peers:
            peer.close()

    async def connected(self, *, frame_bytes_max: int = 100 << 20, in_flight_max: int = 5) -> tuple[Channel, Peer]:
        channel = await Channel.connect(
            "127.0.0.1", self.port, frame_bytes_max=frame_bytes_max, in_flight_max=in_flight_max
        )
        sock, _ = await asyncio.get_running_loop().sock_accept(self._sock)
        self.peers.append(Peer(sock))
        return channel, self.peers[-1]


def asking(channel: Channel, correlation_id: int, body: bytes = b"") -> asyncio.Task[memoryview]:
    return asyncio.create_task(channel.request(request(correlation_id, body), timeout_s=LONG_S))


@both_loops
def test_a_request_gets_its_reply(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected()
            async with channel:
                asked = asking(channel, 7, b"question")
                assert await peer.receive_frame() == request(7, b"question")
                assert channel.in_flight == 1
                await peer.send_frames(response(7, b"answer"))
                assert await asked == response(7, b"answer")
                assert channel.in_flight == 0
                assert str(channel.peer) == f"127.0.0.1:{broker.port}"
            assert channel.closed

    run(scenario())


@both_loops
def test_requests_are_pipelined_up_to_the_limit_and_stay_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected(in_flight_max=3)
            async with channel:
                asked = [asking(channel, number) for number in range(8)]
                assert await peer.receive_frames(3) == [request(number) for number in range(3)]
                await turns()
                assert channel.in_flight == 3
                for number in range(8):
                    await peer.send_frames(response(number, b"%d" % number))
                    if number + 3 < 8:
                        assert await peer.receive_frame() == request(number + 3)
                assert [bytes(await task)[4:] for task in asked] == [b"%d" % number for number in range(8)]

    run(scenario())


@both_loops
@pytest.mark.parametrize("size", [SCRATCH_BYTES - 8, SCRATCH_BYTES, 100_000, 3 << 20])
def test_large_requests_and_replies(run: Run, size: int) -> None:
    async def scenario() -> None:
        bodies = [os.urandom(size) for _ in range(4)]

        async def serve(peer: Peer) -> None:
            for number in range(4):
                assert await peer.receive_frame() == request(number, bodies[number])
                await peer.send_frames(response(number, bodies[number]))

        async with Broker() as broker:
            channel, peer = await broker.connected()
            async with channel:
                serving = asyncio.create_task(serve(peer))
                replies = await asyncio.gather(*(asking(channel, number, bodies[number]) for number in range(4)))
                await serving
                # Replies belong to the caller: later ones do not overwrite them.
                assert [bytes(one[4:]) for one in replies] == bodies

    run(scenario())


@settings(deadline=None, max_examples=25)
@given(sizes=st.lists(st.sampled_from([0, 10, 5000, 70_000]), min_size=1, max_size=5), chunk=st.integers(1, 9000))
def test_replies_arrive_whole_however_they_are_chopped(sizes: list[int], chunk: int) -> None:
    async def scenario() -> None:
        bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
        async with Broker() as broker:
            channel, peer = await broker.connected()
            async with channel:
                asked = [asking(channel, number) for number in range(len(sizes))]
                stream = b"".join(framed(response(number, body)) for number, body in enumerate(bodies))
                await peer.receive_frames(len(sizes))
                for start in range(0, len(stream), chunk):
                    await peer.send(stream[start : start + chunk])
                    await asyncio.sleep(0)
                assert [bytes(await task)[4:] for task in asked] == bodies

    asyncio.run(scenario())


@both_loops
def test_send_only_expects_no_reply(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected(in_flight_max=1)
            async with channel:
                await channel.send_only(request(1, b"acks=0"))
                await channel.send_only(request(2, b"acks=0"))
                asked = asking(channel, 3)
                assert [frame[4:8] for frame in await peer.receive_frames(3)] == [response(n) for n in (1, 2, 3)]
                await peer.send_frames(response(3, b"answer"))
                assert await asked == response(3, b"answer")

    run(scenario())


@both_loops
def test_send_only_waits_for_a_peer_that_does_not_read(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected()
            async with channel:
                body = bytes(1 << 20)
                sent: list[int] = []

                async def send_all() -> None:
                    for number in range(32):
                        await channel.send_only(request(number, body))
                        sent.append(number)

                sending = asyncio.create_task(send_all())
                await turns(200)
                assert len(sent) < 32
                assert await peer.receive_frames(32) == [request(number, body) for number in range(32)]
                await sending

    run(scenario())


# Giving up on a request


@both_loops
def test_a_cancelled_request_leaves_the_channel_usable(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected(in_flight_max=2)
            async with channel:
                abandoned = asking(channel, 1)
                kept = asking(channel, 2)
                never_sent = asking(channel, 3)
                waiting = asking(channel, 4)
                await peer.receive_frames(2)
                abandoned.cancel()
                never_sent.cancel()
                await turns()
                # The peer still owes the first reply, so there is no place for another request yet.
                assert channel.in_flight == 2
                await peer.send_frames(response(1, b"late"), response(2, b"in time"))
                assert await kept == response(2, b"in time")
                assert await peer.receive_frame() == request(4)
                await peer.send_frames(response(4))
                assert await waiting == response(4)
                assert abandoned.cancelled()
                assert never_sent.cancelled()

    run(scenario())


@both_loops
def test_a_request_times_out_and_its_late_reply_is_dropped(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected()
            async with channel:
                with pytest.raises(RequestTimedOut, match=r"did not reply within 0.001 s"):
                    await channel.request(request(1), timeout_s=0.001)
                asked = asking(channel, 2)
                await peer.receive_frames(2)
                await peer.send_frames(response(1), response(2, b"in time"))
                assert await asked == response(2, b"in time")

    run(scenario())


# Losing the connection


@both_loops
@pytest.mark.parametrize("reset", [False, True])
def test_a_lost_connection_fails_everything_outstanding(run: Run, *, reset: bool) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected(in_flight_max=1)
            outstanding = [asking(channel, 1), asking(channel, 2)]
            await peer.receive_frame()
            if reset:
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            for task in outstanding:
                with pytest.raises(ChannelClosed, match=f"127.0.0.1:{broker.port} closed the connection"):
                    await task
            assert channel.closed
            assert channel.in_flight == 0
            with pytest.raises(ChannelClosed, match="closed the connection"):
                await channel.request(request(3), timeout_s=LONG_S)
            with pytest.raises(ChannelClosed, match="closed the connection"):
                await channel.send_only(request(3))
            await channel.close()

    run(scenario())


@both_loops
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (framed(response(2)), "replied to request 2 where 1 was next"),
        (framed(b"abc"), "too short"),
        (b"\xff\xff\xff\xff", "negative frame length"),
        (struct.pack(">i", 1001), "a frame of 1001 bytes exceeds"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame of 1213486160 bytes"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_left(run: Run, sent: bytes, reason: str) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected(frame_bytes_max=1000)
            asked = asking(channel, 1)
            await peer.receive_frame()
            await peer.send(sent)
            with pytest.raises(ChannelClosed, match=reason):
                await asked
            assert channel.closed
            assert await peer.receive_rest() == b""

    run(scenario())


@both_loops
def test_a_reply_that_nobody_asked_for_closes_the_channel(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected()
            await peer.send_frames(response(1))
            await until(lambda: channel.closed)
            with pytest.raises(ChannelClosed, match="nobody asked for"):
                await channel.request(request(1), timeout_s=LONG_S)

    run(scenario())


@both_loops
def test_closing_fails_what_is_outstanding_and_leaves_nothing_behind(run: Run) -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            first, first_peer = await broker.connected()  # event loops keep some files of their own from then on
            await first.close()
            first_peer.close()
            before = open_files()
            tasks_before = asyncio.all_tasks()
            channel, peer = await broker.connected()
            asked = asking(channel, 1)
            await peer.receive_frame()
            await channel.close()
            await channel.close()
            with pytest.raises(ChannelClosed, match="was closed"):
                await asked
            assert await peer.receive_rest() == b""
            peer.close()
            assert asyncio.all_tasks() == tasks_before
            await turns()
            gc.collect()
            assert open_files() == before

    run(scenario())


@both_loops
def test_closing_lets_written_requests_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.net.channel.CLOSE_GRACE_S", LONG_S)

    async def scenario() -> None:
        async with Broker() as broker:
            channel, peer = await broker.connected()
            body = bytes(20 << 20)
            await channel.send_only(request(1, body))
            received, _ = await asyncio.gather(peer.receive_frame(), channel.close())
            assert received == request(1, body)

    run(scenario())


@both_loops
def test_closing_does_not_wait_for_ever(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.net.channel.CLOSE_GRACE_S", 0.01)

    async def scenario() -> None:
        async with Broker() as broker:
            channel, _ = await broker.connected()
            await channel.send_only(request(1, bytes(20 << 20)))
            await channel.close()
            assert channel.closed

    run(scenario())


# Connecting


@both_loops
def test_a_refused_connection_is_explained(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        with pytest.raises(ConnectError, match=f"127.0.0.1:{port} refused the connection: is a broker listening"):
            await Channel.connect("127.0.0.1", port)

    run(scenario())


@both_loops
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".example"])
def test_an_unknown_name_is_explained(run: Run, host: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectError, match="cannot be resolved"):
            await Channel.connect(host, 9092)

    run(scenario())


@both_loops
def test_connecting_gives_up_in_time_and_leaves_no_socket(run: Run) -> None:
    async def scenario() -> None:
        before = open_files()
        with contextlib.ExitStack() as closing:
            # A backlog that is full: the system drops further attempts silently.
            sock = closing.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            sock.listen(0)
            for _ in range(4):
                filler = closing.enter_context(socket.socket())
                filler.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    filler.connect(sock.getsockname())
            with pytest.raises(ConnectError, match=r"did not answer within 0.05 s"):
                await Channel.connect("127.0.0.1", sock.getsockname()[1], connect_timeout_s=0.05)
        await turns()
        assert open_files() == before

    run(scenario())


@both_loops
def test_a_name_with_several_addresses_is_tried_through(run: Run) -> None:
    async def scenario() -> None:
        # Only IPv4 listens; where the name also has an IPv6 address, that one refuses.
        async with Broker() as broker:
            channel = await Channel.connect("localhost", broker.port)
            assert not channel.closed
            await channel.close()

    run(scenario())
