from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from net_ends import Peer, ScriptedService, SetClock, both_loops, echo, framed, open_files, reply, turns, until

from tidelog.net.address import Address
from tidelog.net.admission import Admission, AdmissionLimits
from tidelog.net.limits import ConnectionLimits
from tidelog.net.listener import CannotListenError, Listener, SocketOptions
from tidelog.net.outgoing import Parked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from net_ends import Answer, Run

    from tidelog.net.outgoing import Outcome, Reply


@contextlib.asynccontextmanager
async def listening(
    answer: Answer = echo,
    *,
    limits: ConnectionLimits | None = None,
    admission: AdmissionLimits | None = None,
    clock: SetClock | None = None,
    host: str = "127.0.0.1",
    options: SocketOptions | None = None,
) -> AsyncIterator[Listener]:
    listener = Listener(
        "PLAINTEXT",
        ScriptedService(answer),
        clock=clock or SetClock(),
        limits=limits or ConnectionLimits(linger_s=0.0),
        admission=Admission(admission or AdmissionLimits()),
        options=options,
    )
    await listener.start(host, 0)
    try:
        yield listener
    finally:
        await listener.stop(0.0)


@contextlib.asynccontextmanager
async def connected(listener: Listener, count: int) -> AsyncIterator[list[Peer]]:
    """Peers whose connections have been accepted and answered."""
    with contextlib.ExitStack() as closing:
        peers: list[Peer] = []
        for _ in range(count):
            peer = await Peer.connect(listener.addresses[0])
            closing.callback(peer.close)
            await peer.send_frames(b"hello")
            assert await peer.receive_frame() == b"hello"
            peers.append(peer)
        yield peers


@both_loops
def test_many_connections_are_served(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener, 150) as peers:
            assert len(listener.connections) == 150
            for number, peer in enumerate(peers):
                await peer.send_frames(b"%d" % number)
            for number, peer in enumerate(peers):
                assert await peer.receive_frame() == b"%d" % number

    run(scenario())


@both_loops
def test_connections_know_both_addresses(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener, 1) as (peer,):
            (connection,) = listener.connections
            assert connection.peer == Address.of(peer.sock.getsockname())
            assert connection.local == listener.addresses[0]
            assert connection.local.port == listener.port > 0

    run(scenario())


@both_loops
def test_small_packets_are_not_delayed(run: Run) -> None:
    async def scenario() -> None:
        options = SocketOptions(send_buffer_bytes=20_000, receive_buffer_bytes=30_000)
        async with listening(options=options) as listener, connected(listener, 1):
            (connection,) = listener.connections
            sock = connection._sock
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 20_000
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 30_000

    run(scenario())


@both_loops
def test_all_interfaces_and_names_are_listened_on(run: Run) -> None:
    async def scenario() -> None:
        async with listening(host="") as listener:
            peer = await Peer.connect(Address("127.0.0.1", listener.port))
            await peer.send_frames(b"hello")
            assert await peer.receive_frame() == b"hello"
            peer.close()
        async with listening(host="localhost") as listener:
            assert {address.port for address in listener.addresses} == {listener.port}
            for address in listener.addresses:
                peer = await Peer.connect(address)
                await peer.send_frames(b"hello")
                assert await peer.receive_frame() == b"hello"
                peer.close()

    run(scenario())


@both_loops
def test_a_taken_port_is_explained(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as listener:
            second = Listener("SECOND", ScriptedService(echo), clock=SetClock())
            with pytest.raises(CannotListenError, match="the port is taken"):
                await second.start("127.0.0.1", listener.port)
            await second.stop(0.0)

    run(scenario())


@both_loops
@pytest.mark.parametrize(
    ("host", "explanation"),
    [("no-such-host.invalid", "has no address here"), ("192.0.2.1", "this machine has no such address")],
)
def test_an_address_that_is_not_ours_is_explained(run: Run, host: str, explanation: str) -> None:
    async def scenario() -> None:
        listener = Listener("PLAINTEXT", ScriptedService(echo), clock=SetClock())
        with pytest.raises(CannotListenError, match=explanation):
            await listener.start(host, 0)

    run(scenario())


# Limits


@both_loops
@pytest.mark.parametrize(
    ("admission", "reason"),
    [
        (AdmissionLimits(connections_max=3), "max.connections = 3"),
        (AdmissionLimits(connections_max_per_ip=3), "127.0.0.1 has 3 connections and may have 3"),
    ],
)
def test_connections_over_the_limit_are_closed_with_a_reason(
    run: Run, caplog: pytest.LogCaptureFixture, admission: AdmissionLimits, reason: str
) -> None:
    async def scenario() -> None:
        async with listening(admission=admission) as listener, connected(listener, 3) as peers:
            refused = await Peer.connect(listener.addresses[0])
            assert await refused.receive_rest() == b""
            refused.close()
            assert len(listener.connections) == 3
            peers[0].close()
            await until(lambda: len(listener.connections) == 2)
            async with connected(listener, 1):
                assert len(listener.connections) == 3

    run(scenario())
    assert reason in caplog.text


@both_loops
def test_the_log_of_refusals_is_bounded(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening(admission=AdmissionLimits(connections_max=0)) as listener:
            for _ in range(50):
                refused = await Peer.connect(listener.addresses[0])
                assert await refused.receive_rest() == b""
                refused.close()

    run(scenario())
    assert 0 < len(caplog.messages) < 20


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """The process can open nothing, as if it had used up its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@both_loops
def test_accepting_pauses_when_the_system_has_no_room(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener, 1) as (first,):
            sock = socket.socket()
            sock.setblocking(False)
            with no_more_files():
                with contextlib.suppress(BlockingIOError):
                    sock.connect(tuple(listener.addresses[0]))
                await until(lambda: "cannot accept" in caplog.text)
                # It is not tried again at each turn of the loop, and who is connected is served.
                await turns(200)
                await first.send_frames(b"still served")
                assert await first.receive_frame() == b"still served"
                assert len(caplog.messages) == 1
            listener._accept_again()
            late = Peer(sock)
            await late.send_frames(b"let in at last")
            assert await late.receive_frame() == b"let in at last"
            late.close()

    run(scenario())
    assert "raise the open file limit" in caplog.text


# Idling and strangers


@both_loops
def test_idle_connections_are_swept_away(run: Run) -> None:
    async def scenario() -> None:
        clock = SetClock()
        async with listening(clock=clock) as listener, connected(listener, 3) as peers:
            listener.sweep()
            clock.seconds += 400
            await peers[0].send_frames(b"awake")
            assert await peers[0].receive_frame() == b"awake"
            listener.sweep()
            clock.seconds += 400
            listener.sweep()
            assert len(listener.connections) == 1
            assert await peers[1].receive_rest() == b""
            await peers[0].send_frames(b"awake")
            assert await peers[0].receive_frame() == b"awake"

    run(scenario())


@both_loops
def test_the_sweep_runs_by_itself(run: Run) -> None:
    async def scenario() -> None:
        clock = SetClock()
        limits = ConnectionLimits(idle_timeout_s=0.2)
        async with listening(clock=clock, limits=limits) as listener, connected(listener, 1) as (peer,):
            listener._sweep_on(asyncio.get_running_loop())
            clock.seconds += 1
            assert await peer.receive_rest() == b""

    run(scenario())


@both_loops
def test_a_web_browser_is_told_apart(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening() as listener:
            peer = await Peer.connect(listener.addresses[0])
            await peer.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await peer.receive_rest() == b""
            peer.close()

    run(scenario())
    assert "speaks HTTP" in caplog.text
    assert "connection of 127.0.0.1:" in caplog.text


@both_loops
def test_a_reset_by_the_peer_is_no_event(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening() as listener, connected(listener, 1) as (peer,):
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            await until(lambda: not listener.connections)

    run(scenario())
    assert caplog.text == ""


# Stopping


class ParkingService:
    def __init__(self) -> None:
        self.parked: dict[bytes, asyncio.Future[Reply]] = {}

    def __call__(self, frame: bytes) -> Outcome:
        if not frame.startswith(b"park"):
            return reply(frame)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.parked[frame] = future
        return Parked(future)


@both_loops
def test_stopping_lets_replies_in_progress_out(run: Run) -> None:
    async def scenario() -> None:
        service = ParkingService()
        limits = ConnectionLimits(linger_s=1e6)
        async with listening(service, limits=limits) as listener, connected(listener, 2) as (busy, idle):
            await busy.send_frames(b"park")
            await until(lambda: b"park" in service.parked)
            stopping = asyncio.create_task(listener.stop(1e6))
            assert await idle.receive_rest() == b""
            idle.close()
            assert not stopping.done()
            with pytest.raises(ConnectionRefusedError):
                await Peer.connect(listener.addresses[0])
            service.parked[b"park"].set_result(reply(b"done"))
            assert await busy.receive_rest() == framed(b"done")
            busy.close()
            await stopping
            assert not listener.connections

    run(scenario())


@both_loops
def test_stopping_ends_after_the_grace_time(run: Run) -> None:
    async def scenario() -> None:
        service = ParkingService()
        never = asyncio.Event()
        seen: list[str] = []

        async def stuck() -> Reply:
            try:
                await never.wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            return reply(b"never")

        def answer(frame: bytes) -> Outcome:
            return stuck() if frame == b"stuck" else service(frame)

        async with listening(answer) as listener, connected(listener, 3) as (parked, working, gone):
            await parked.send_frames(b"park")
            await working.send_frames(b"stuck")
            await gone.send_frames(b"stuck")
            await until(lambda: len(service.parked) == 1 and listener._host is not None)
            assert listener._host is not None
            tasks = listener._host.tasks
            await until(lambda: len(tasks) == 2)
            gone.close()
            await listener.stop(0.01)
            assert not listener.connections
            assert not tasks
            assert seen == ["cancelled", "cancelled"]
            assert service.parked[b"park"].cancelled()
            assert await parked.receive_rest() == b""

    run(scenario())


@both_loops
def test_stopping_leaves_no_file_and_no_timer_behind(run: Run) -> None:
    async def scenario() -> None:
        gc.collect()
        before = open_files()
        for _ in range(2):
            async with listening() as listener, connected(listener, 5):
                pass
            await listener.stop(0.0)
            assert listener._sweep_timer is None
        await turns()
        assert open_files() == before

    run(scenario())
