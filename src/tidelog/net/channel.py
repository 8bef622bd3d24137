"""The asking side of a connection: pipelined requests to one broker, replies matched in order.

A channel knows bytes, not messages, except for one thing: a request carries its correlation id at bytes 4 to 8, a
reply at bytes 0 to 4. It has no task of its own and leaves nothing behind when closed.

    ChannelError
      +-- ConnectError      no connection came about
      |     +-- TlsError    because TLS could not be agreed on
      +-- ChannelClosed     the connection is gone; every request outstanding fails with it
      +-- RequestTimedOut   no reply in time; the channel stays usable and drops the late reply
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from tidelog.net.address import Address
from tidelog.net.framing import LENGTH, FrameError
from tidelog.net.receive_buffer import SCRATCH_BYTES, ReceiveBuffer, Scratch

if TYPE_CHECKING:
    from types import TracebackType

JOINED_BYTES_MAX = 64 << 10
"""Payloads up to this size are copied behind their length prefix, to go out as one."""

CLOSE_GRACE_S = 1.0

_CORRELATION_ID = Struct(">i")
_REQUEST_CORRELATION_ID_AT = 4


class ChannelError(Exception):
    pass


class ConnectError(ChannelError):
    pass


class TlsError(ConnectError):
    """TLS could not be agreed on, which trying again will not change."""


class ChannelClosed(ChannelError):  # noqa: N818 - a state
    pass


class RequestTimedOut(ChannelError):  # noqa: N818 - an event
    pass


class Channel:
    """One connection to one broker. Requests are sent in the order in which `request` and `send_only` are called."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        connect_timeout_s: float = 10.0,
        frame_bytes_max: int = 100 << 20,
        in_flight_max: int = 5,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """With `tls`, the broker's certificate is held against `host` if the context says so."""
        peer = Address(host, port)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_timeout_s):
                sock = await _open(loop, peer)
                try:
                    wire = _Wire(loop, peer, frame_bytes_max, in_flight_max)
                    if tls is None:
                        await loop.create_connection(lambda: wire, sock=sock)
                    else:
                        await loop.create_connection(lambda: wire, sock=sock, ssl=tls, server_hostname=host)
                except OSError as error:
                    sock.close()
                    raise (_explain(error, peer) if tls is None else _explain_tls(error, peer)) from error
                except BaseException:
                    sock.close()
                    raise
        except TimeoutError:
            raise ConnectError(
                f"{peer} did not answer within {connect_timeout_s:g} s: check the address, and that no firewall drops "
                "the connection"
            ) from None
        return cls(wire)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def peer(self) -> Address:
        return self._wire.peer

    @property
    def closed(self) -> bool:
        return self._wire.closed_because is not None

    async def closed_within(self, timeout_s: float) -> bool:
        """Waits that long, or until the connection is gone; true if it is."""
        if not self.closed:
            await asyncio.wait([self._wire.lost], timeout=timeout_s)
        return self.closed

    @property
    def overdue(self) -> bool:
        """Whoever sent the oldest request has left, and its reply has not come in its time: nor will those behind it.

        Those who still wait find out by themselves.
        """
        return self._wire.overdue

    @property
    def in_flight(self) -> int:
        """Requests sent whose replies have not come, abandoned ones included."""
        return len(self._wire.in_flight)

    async def request(self, payload: bytes | bytearray, *, timeout_s: float) -> memoryview:
        """Sends one request (without length prefix) and waits for its reply (the same, so correlation id first).

        The time includes waiting for a place among the requests in flight. The payload must not change any more.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wire.submit(payload, expects_reply=True, timeout_s=timeout_s)
        except TimeoutError:
            raise RequestTimedOut(f"{self.peer} did not reply within {timeout_s:g} s") from None

    async def send_only(self, payload: bytes | bytearray) -> None:
        """Sends one request that gets no reply. Returns when it is its turn to be written, not when it arrives."""
        await self._wire.submit(payload, expects_reply=False)

    async def close(self) -> None:
        """Fails what is outstanding, lets written bytes go out for a moment, and closes."""
        await self._wire.close()

    def abort(self) -> None:
        """As `close`, without waiting for anything."""
        self._wire.abort()


class _Request:
    __slots__ = ("due_s", "expects_reply", "future", "payload")

    def __init__(
        self, payload: bytes | bytearray, future: asyncio.Future[memoryview], due_s: float, *, expects_reply: bool
    ) -> None:
        self.payload = payload
        self.future = future
        self.due_s = due_s
        self.expects_reply = expects_reply


class _Sent(NamedTuple):
    correlation_id: int
    future: asyncio.Future[memoryview]
    due_s: float


class _Wire(asyncio.BufferedProtocol):
    """The connection itself. A request waits in `queue` for its turn, then in `in_flight` for its reply."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, peer: Address, frame_bytes_max: int, in_flight_max: int
    ) -> None:
        self.peer = peer
        self.closed_because: str | None = None
        self.queue: deque[_Request] = deque()
        self.in_flight: deque[_Sent] = deque()
        self._loop = loop
        self._in_flight_max = in_flight_max
        self._inbound = ReceiveBuffer(Scratch(), frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self.lost: asyncio.Future[None] = loop.create_future()

    @property
    def overdue(self) -> bool:
        if not self.in_flight:
            return False
        oldest = self.in_flight[0]
        return oldest.future.done() and self._loop.time() > oldest.due_s

    def submit(
        self, payload: bytes | bytearray, *, expects_reply: bool, timeout_s: float = 0.0
    ) -> asyncio.Future[memoryview]:
        if self.closed_because is not None:
            raise ChannelClosed(self.closed_because)
        assert len(payload) >= _REQUEST_CORRELATION_ID_AT + _CORRELATION_ID.size, "a request starts with its header"
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self.queue.append(_Request(payload, future, self._loop.time() + timeout_s, expects_reply=expects_reply))
        self._write_queued()
        return future

    async def close(self) -> None:
        self._fail(f"the channel to {self.peer} was closed")
        transport = self._transport
        if transport is None or self.lost.done():
            return
        transport.close()
        try:
            await asyncio.wait([self.lost], timeout=CLOSE_GRACE_S)
        finally:
            if not self.lost.done():
                transport.abort()
        await asyncio.wait([self.lost])

    def abort(self) -> None:
        self._fail(f"the channel to {self.peer} was closed")
        if self._transport is not None and not self.lost.done():
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        detail = f": {exc}" if exc is not None else ""
        self._fail(f"{self.peer} closed the connection{detail}")
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._write_queued()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._inbound.space()

    def buffer_updated(self, nbytes: int) -> None:
        inbound = self._inbound
        inbound.received(nbytes)
        try:
            while (frame := inbound.next_frame()) is not None:
                self._deliver(frame)
        except (FrameError, ChannelClosed) as error:
            self._break(str(error))
            return
        inbound.settle()
        self._write_queued()

    # Requests and replies

    def _write_queued(self) -> None:
        """Writes waiting requests in order while there is room for them; cancelled ones are passed over."""
        transport = self._transport
        if transport is None or self.closed_because is not None:
            return
        queue = self.queue
        while queue and self._writable:
            request = queue[0]
            if request.future.done():
                queue.popleft()
                continue
            if request.expects_reply:
                if len(self.in_flight) >= self._in_flight_max:
                    return
                (correlation_id,) = _CORRELATION_ID.unpack_from(request.payload, _REQUEST_CORRELATION_ID_AT)
                self.in_flight.append(_Sent(correlation_id, request.future, request.due_s))
            else:
                request.future.set_result(memoryview(b""))
            queue.popleft()
            self._write(transport, request.payload)

    def _write(self, transport: asyncio.Transport, payload: bytes | bytearray) -> None:
        prefix = LENGTH.pack(len(payload))
        if len(payload) <= JOINED_BYTES_MAX:
            transport.write(prefix + payload)
        else:
            transport.write(prefix)
            transport.write(payload)

    def _deliver(self, frame: memoryview) -> None:
        if not self.in_flight:
            raise ChannelClosed(f"{self.peer} sent a reply that nobody asked for")
        if len(frame) < _CORRELATION_ID.size:
            raise ChannelClosed(f"{self.peer} sent a reply of {len(frame)} bytes: too short to be one")
        expected, future, _due_s = self.in_flight.popleft()
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if correlation_id != expected:
            reason = f"{self.peer} replied to request {correlation_id} where {expected} was next: replies come in order"
            if not future.done():
                future.set_exception(ChannelClosed(reason))
            raise ChannelClosed(reason)
        if future.done():
            return  # nobody waits for it any more
        if len(frame) > SCRATCH_BYTES:
            self._inbound.surrender()
            future.set_result(frame)
        else:
            future.set_result(memoryview(bytes(frame)))

    def _break(self, reason: str) -> None:
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        if self.closed_because is not None:
            return
        self.closed_because = reason
        futures = [sent.future for sent in self.in_flight] + [request.future for request in self.queue]
        self.in_flight.clear()
        self.queue.clear()
        for future in futures:
            if not future.done():
                future.set_exception(ChannelClosed(reason))


async def _open(loop: asyncio.AbstractEventLoop, peer: Address) -> socket.socket:
    """Tries the addresses of the name one after the other."""
    try:
        found = await loop.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ConnectError(
            f"the host name {peer.host!r} cannot be resolved ({error}): check its spelling, or what the broker's "
            "advertised.listeners says"
        ) from error
    failure: OSError | None = None
    for family, kind, protocol, _, sockaddr in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, sockaddr)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise _explain(failure, peer)


def _explain(failure: OSError | None, peer: Address) -> ConnectError:
    if isinstance(failure, ConnectionRefusedError):
        return ConnectError(f"{peer} refused the connection: is a broker listening there?")
    return ConnectError(f"cannot connect to {peer}: {failure or 'the name has no address'}")


def _explain_tls(failure: OSError, peer: Address) -> ConnectError:
    if isinstance(failure, ssl.SSLCertVerificationError):
        return TlsError(
            f"{peer} shows a certificate that is not trusted ({failure.verify_message}): check the CA certificate that "
            "was given, and that the certificate names the host"
        )
    if isinstance(failure, ssl.SSLError) and not isinstance(failure, ssl.SSLEOFError):
        return TlsError(
            f"no TLS connection to {peer} ({failure.reason or failure}): does it listen for TLS there, and does it "
            "want a client certificate?"
        )
    return ConnectError(f"{peer} closed the connection while TLS was being agreed on: does it listen for TLS there?")
