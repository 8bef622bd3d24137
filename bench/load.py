"""The raw-socket load generator: repeats prebuilt frames with pipelining, and does as little else as it can.

All replies to equal requests are equally long, so that counting bytes counts replies; the caller checks by other means
that the work was done. Every function runs in this process and gives how fast it went; the peer has the other core.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RECEIVE_BYTES = 1 << 20
_SOCKET_TIMEOUT_S = 30.0


_End = tuple[Callable[[bytearray], int], Callable[[bytes], int]]
"""How to receive and to send at one connection."""


class Load(NamedTuple):
    requests: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def pipelined(port: int, frame: bytes, count: int, in_flight: int, seconds: float) -> Load:
    """Equal requests over one connection, `in_flight` of them unanswered at any time, for so many or so long."""
    blob = memoryview(frame * in_flight)
    size = len(frame)
    buffer = bytearray(RECEIVE_BYTES)
    with _connected(port) as sock:
        reply_bytes = _reply_bytes(sock, frame)
        send, receive = sock.sendall, sock.recv_into
        with _undisturbed():
            started = now = time.perf_counter()
            until = started + seconds
            sent = min(in_flight, count)
            send(blob[: sent * size])
            received, answered = 0, 0
            while answered < sent:
                got = receive(buffer)
                if not got:
                    raise ConnectionError("the peer closed the connection under load")
                received += got
                now = time.perf_counter()
                now_answered = received // reply_bytes
                more = min(now_answered - answered, count - sent)
                answered = now_answered
                if more > 0 and now < until:
                    send(blob[: more * size])
                    sent += more
            return Load(answered, now - started)


def spread(port: int, frame: bytes, seconds: float, connections: int, in_flight: int) -> Load:
    """Equal small requests over many connections at once, each with `in_flight` of them unanswered."""
    socks = [_connect(port) for _ in range(connections)]
    try:
        reply_bytes = _reply_bytes(socks[0], frame)
        rounds = [frame * count for count in range(in_flight + 1)]
        with select.epoll() as epoll, _undisturbed():
            ends: dict[int, _End] = {}
            for sock in socks:
                epoll.register(sock.fileno(), select.EPOLLIN)
                ends[sock.fileno()] = (sock.recv_into, sock.send)
            started = time.perf_counter()
            answered = _exchange(epoll, ends, rounds, reply_bytes, started + seconds)
            return Load(answered, time.perf_counter() - started)
    finally:
        for sock in socks:
            sock.close()


def download(port: int, frames: Sequence[bytes], count: int, in_flight: int, seconds: float) -> Load:
    """Requests with large replies over one connection, taking `frames` in turn, so many or for so long."""
    buffer = bytearray(RECEIVE_BYTES)
    with _connected(port) as sock:
        reply_bytes = _reply_bytes(sock, frames[0])
        send, receive = sock.sendall, sock.recv_into
        with _undisturbed():
            started = now = time.perf_counter()
            until = started + seconds
            sent = min(in_flight, count)
            for index in range(sent):
                send(frames[index % len(frames)])
            received, answered = 0, 0
            while answered < sent:
                got = receive(buffer)
                if not got:
                    raise ConnectionError("the peer closed the connection under load")
                received += got
                while received >= (answered + 1) * reply_bytes:
                    answered += 1
                    now = time.perf_counter()
                    if sent < count and now < until:
                        send(frames[sent % len(frames)])
                        sent += 1
            return Load(answered, now - started)


def drain(sock: socket.socket, byte_count: int, seconds: float) -> float:
    """Bytes per second of a stream, of which so many bytes are read, or for so long."""
    buffer = bytearray(RECEIVE_BYTES)
    receive = sock.recv_into
    received = 0
    with _undisturbed():
        started = now = time.perf_counter()
        while received < byte_count and now < started + seconds:
            got = receive(buffer)
            if not got:
                raise ConnectionError("the peer closed the connection early")
            received += got
            now = time.perf_counter()
        return received / (now - started)


def _exchange(epoll: select.epoll, ends: dict[int, _End], rounds: list[bytes], reply_bytes: int, until: float) -> int:
    """Keeps every connection busy until the time is over; how many replies came."""
    buffer = bytearray(RECEIVE_BYTES)
    for _, send in ends.values():
        send(rounds[-1])
    partial = dict.fromkeys(ends, 0)
    answered = 0
    while time.perf_counter() < until:
        for fd, _ in epoll.poll():
            receive, send = ends[fd]
            got = receive(buffer)
            if not got:
                raise ConnectionError("the peer closed a connection under load")
            if got == reply_bytes:
                whole = 1
            else:
                whole, partial[fd] = divmod(partial[fd] + got, reply_bytes)
            answered += whole
            send(rounds[whole])
    return answered


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    sock = _connect(port)
    try:
        yield sock
    finally:
        sock.close()


def _connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=_SOCKET_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(None)
    return sock


def _reply_bytes(sock: socket.socket, frame: bytes) -> int:
    """Sends one request ahead and measures its reply, length prefix included."""
    sock.sendall(frame)
    reply = b""
    while len(reply) < 4 or len(reply) < 4 + int.from_bytes(reply[:4], "big"):
        got = sock.recv(RECEIVE_BYTES)
        if not got:
            raise ConnectionError("the peer closed the connection instead of answering")
        reply += got
    return len(reply)


@contextmanager
def _undisturbed() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
