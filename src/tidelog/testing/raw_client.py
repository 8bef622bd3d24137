"""A client that sends exactly what it is told, right or wrong, and reads replies one by one.

Real clients hide what is on the wire and refuse to send nonsense; this one does neither. It blocks, and gives up on a
silent broker after `timeout_s`.
"""

from __future__ import annotations

import socket
from struct import Struct
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.net.framing import LENGTH_BYTES, FrameDecoder
from tidelog.wire.codec import decode
from tidelog.wire.headers import encode_request, response_body

if TYPE_CHECKING:
    from types import TracebackType

    from tidelog.wire.declare import Message

    M = TypeVar("M", bound=Message)

_CORRELATION = Struct(">i")
_RECEIVE_BYTES = 1 << 16
_FRAME_BYTES_MAX = 256 << 20


class ConnectionEnded(ConnectionError):  # noqa: N818 - named for the fact it reports
    """The broker closed the connection instead of answering."""


class RawClient:
    def __init__(
        self, port: int, host: str = "127.0.0.1", *, client_id: str | None = "raw-client", timeout_s: float = 20.0
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.client_id = client_id
        self._decoder = FrameDecoder(_FRAME_BYTES_MAX)
        self._frames: list[bytes] = []
        self._next_correlation_id = 1

    def call(self, request: Message, version: int, reply: type[M]) -> M:
        """Send one request and read its reply."""
        correlation_id = self.send(request, version)
        return self.receive(reply, version, correlation_id)

    def send(self, request: Message, version: int) -> int:
        """Send one request; gives its correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.send_bytes(encode_request(request, version, correlation_id, self.client_id))
        return correlation_id

    def receive(self, reply: type[M], version: int, correlation_id: int) -> M:
        """Read the next reply, which must be the one to `correlation_id`: replies come in order."""
        frame = memoryview(self.receive_frame())
        (came,) = _CORRELATION.unpack_from(frame)
        assert came == correlation_id, f"the reply to request {correlation_id} was due, {came} came"
        return decode(reply, frame, version, response_body(reply, frame, version))

    def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(_CORRELATION.pack(len(body)) + body)

    def receive_frame(self) -> bytes:
        """The next reply without its length."""
        while not self._frames:
            data = self.socket.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionEnded("the broker closed the connection")
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)

    def wait_until_closed(self) -> int:
        """Read until the broker closes the connection; gives how many bytes of unread replies came before."""
        unread = sum(LENGTH_BYTES + len(frame) for frame in self._frames) + self._decoder.held_bytes
        while True:
            try:
                data = self.socket.recv(_RECEIVE_BYTES)
            except ConnectionResetError:
                return unread
            if not data:
                return unread
            unread += len(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
