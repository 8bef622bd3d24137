"""Both ends of a connection for tests: a real one of ours, and a peer that does exactly what it is told."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
import uvloop

from tidelog.clock import Clock
from tidelog.net.address import Address
from tidelog.net.complaints import Complaints
from tidelog.net.connection import Connection
from tidelog.net.limits import ConnectionLimits
from tidelog.net.outgoing import Outgoing
from tidelog.net.receive_buffer import Scratch
from tidelog.net.service import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.net.outgoing import Outcome

    Run = Callable[[Coroutine[Any, Any, None]], None]
    Answer = Callable[[bytes], Outcome]

TIME_LIMIT_S = 60.0
"""Only a test that hangs meets it."""


def _on_asyncio(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(scenario, TIME_LIMIT_S))


def _on_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, TIME_LIMIT_S))


both_loops = pytest.mark.parametrize("run", [_on_asyncio, _on_uvloop], ids=["asyncio", "uvloop"])


class SetClock(Clock):
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class ScriptedService:
    """Answers each frame with what `answer` makes of its bytes, and remembers the frames."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.frames: list[bytes] = []
        self.connections: list[Connection] = []

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        self.connections.append(connection)
        self.frames.append(bytes(frame))
        return self.answer(bytes(frame))


class FileRegion:
    """A run of a real file, or of bytes that pretend to have none."""

    def __init__(self, data: bytes, file: int | None, position: int) -> None:
        self._data = data
        self._file = file
        self.position = position
        self.size = len(data)

    def fileno(self) -> int | None:
        return self._file

    def read(self, start: int = 0, count: int | None = None) -> bytes:
        stop = self.size if count is None else start + count
        return self._data[start:stop]


def file_region(directory: Path, data: bytes, *, before: bytes = b"before") -> FileRegion:
    """Written behind other bytes; the file stays open as long as the process, as tests are short."""
    file = os.open(directory / f"region-{len(list(directory.iterdir()))}", os.O_RDWR | os.O_CREAT)
    os.write(file, before + data + b"after")
    return FileRegion(data, file, len(before))


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def reply(payload: bytes) -> Outgoing:
    return Outgoing(framed(payload))


def echo(payload: bytes) -> Outcome:
    return reply(payload)


class Peer:
    """The other end: a plain socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, address: Address) -> Peer:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, tuple(address))
        except OSError:
            sock.close()
            raise
        return cls(sock)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def send_frames(self, *payloads: bytes) -> None:
        await self.send(b"".join(framed(payload) for payload in payloads))

    async def receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            data = await self._loop.sock_recv(self.sock, count - len(received))
            if not data:
                raise EOFError(f"closed after {len(received)} of {count} bytes")
            received += data
        return bytes(received)

    async def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", await self.receive(4))
        return await self.receive(length)

    async def receive_frames(self, count: int) -> list[bytes]:
        return [await self.receive_frame() for _ in range(count)]

    async def receive_rest(self) -> bytes:
        """Everything until the end of the connection, however it ends."""
        received = bytearray()
        try:
            while data := await self._loop.sock_recv(self.sock, 1 << 16):
                received += data
        except ConnectionResetError:
            pass
        return bytes(received)

    def close(self) -> None:
        self.sock.close()


class Ends:
    """A connection of ours and its peer, over a socket pair. Closes both when done."""

    def __init__(
        self,
        answer: Answer = echo,
        *,
        limits: ConnectionLimits | None = None,
        clock: SetClock | None = None,
        scratch: Scratch | None = None,
        service: ScriptedService | None = None,
        socket_buffer_bytes: int | None = None,
    ) -> None:
        self.service = service or ScriptedService(answer)
        self.clock = clock or SetClock()
        self.closings: list[Connection] = []
        self.loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        if socket_buffer_bytes is not None:
            for sock in (ours, theirs):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, socket_buffer_bytes)
        self.host = Host(
            loop=self.loop,
            listener_name="PLAINTEXT",
            service=self.service,
            limits=limits or ConnectionLimits(),
            scratch=scratch or Scratch(),
            complaints=Complaints(self.clock),
            on_closed=self.closings.append,
        )
        self.peer = Peer(theirs)
        self.connection = Connection(ours, Address("192.0.2.7", 1234), self.host, self.clock.monotonic())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.peer.close()
        self.connection.close()
        while self.host.tasks:
            await asyncio.wait(set(self.host.tasks))


def open_files() -> int:
    gc.collect()  # what an earlier test left to the collector must not go while this one counts
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(condition: Callable[[], bool]) -> None:
    """Lets the event loop turn until the condition holds."""
    while not condition():  # noqa: ASYNC110 - what it waits for is a socket's doing
        await asyncio.sleep(0)


async def turns(count: int = 20) -> None:
    """Lets the event loop turn a few times, for what must not happen to have its chance."""
    for _ in range(count):
        await asyncio.sleep(0)
