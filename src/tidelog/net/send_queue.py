"""Replies on their way out: bytes joined into few sends, file regions sent from the page cache, order kept.

A queue holds what the socket did not take yet and nothing else. It never blocks on the socket.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from socket import MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from tidelog.net.outgoing import Outgoing, Region

JOINED_BYTES_MAX = 64 << 10
"""Chunks are joined up to this size; larger ones are sent as they are, since copying them would cost more."""

INLINE_REGION_BYTES_MAX = 16 << 10
"""Regions up to this size are read and joined with the bytes around them: one send instead of three."""

SENDFILE_BYTES_MAX = 1 << 20
FLUSH_BYTES_MAX = 4 << 20
"""Sent to one peer before other connections get their turn."""

_FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL
_FLAGS_MORE = _FLAGS | MSG_MORE


class RegionLostError(Exception):
    """A file does not hold what was promised in a frame whose length is already sent: only closing is left."""


class _PendingRegion:
    __slots__ = ("region", "sent")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.sent = 0


class SendQueue:
    __slots__ = ("_chunks", "unsent_bytes")

    def __init__(self) -> None:
        self._chunks: deque[bytes | bytearray | memoryview | _PendingRegion] = deque()
        self.unsent_bytes = 0

    def put(self, outgoing: Outgoing) -> None:
        data, splices = outgoing
        if splices:
            self._put_spliced(outgoing)
        else:
            self._chunks.append(data)
            self.unsent_bytes += len(data)

    def clear(self) -> None:
        self._chunks.clear()
        self.unsent_bytes = 0

    def flush(self, sock: socket.socket) -> int:
        """Sends what the socket takes, or a turn's worth; the number of bytes sent.

        Raises OSError when the connection is gone and RegionLostError when a file is.
        """
        chunks = self._chunks
        total = 0
        if len(chunks) == 1 and not isinstance(chunks[0], _PendingRegion):
            return self._send_only(sock, chunks[0])
        try:
            while chunks and total < FLUSH_BYTES_MAX:
                head = chunks[0]
                if isinstance(head, _PendingRegion) and head.region.size > INLINE_REGION_BYTES_MAX:
                    sent = self._send_region(sock, head)
                else:
                    sent, whole = self._send_bytes(sock)
                    if not whole:
                        return total + sent
                total += sent
        except BlockingIOError:
            pass
        return total

    def _send_only(self, sock: socket.socket, data: bytes | bytearray | memoryview) -> int:
        """The usual case, one reply of bytes, without the detours that joining needs."""
        try:
            sent = sock.send(data, _FLAGS)
        except BlockingIOError:
            return 0
        self.unsent_bytes -= sent
        if sent == len(data):
            self._chunks.clear()
        else:
            self._chunks[0] = memoryview(data)[sent:]
        return sent

    def _put_spliced(self, outgoing: Outgoing) -> None:
        view = memoryview(outgoing.data)
        start = 0
        for position, region in outgoing.splices:
            assert start <= position <= len(view), "splice positions ascend within the data"
            if position > start:
                self._chunks.append(view[start:position])
            if region.size:
                self._chunks.append(_PendingRegion(region))
            start = position
        if start < len(view):
            self._chunks.append(view[start:])
        self.unsent_bytes += outgoing.size

    def _send_bytes(self, sock: socket.socket) -> tuple[int, bool]:
        """One send of the bytes at the head; how many went out, and whether that was all of them."""
        chunks = self._chunks
        blob = self._take_bytes()
        try:
            sent = sock.send(blob, _FLAGS_MORE if chunks else _FLAGS)
        except BlockingIOError:
            chunks.appendleft(blob)
            raise
        self.unsent_bytes -= sent
        if sent == len(blob):
            return sent, True
        chunks.appendleft(memoryview(blob)[sent:])
        return sent, False

    def _take_bytes(self) -> bytes | bytearray | memoryview:
        """Removes the bytes and small regions at the head, joined."""
        chunks = self._chunks
        first = _as_bytes(chunks[0])
        chunks.popleft()
        size = len(first)
        if not chunks or size >= JOINED_BYTES_MAX:
            return first
        run = [first]
        while chunks:
            chunk = chunks[0]
            size += chunk.region.size if isinstance(chunk, _PendingRegion) else len(chunk)
            if size > JOINED_BYTES_MAX:
                break
            if isinstance(chunk, _PendingRegion) and chunk.region.size > INLINE_REGION_BYTES_MAX:
                break
            run.append(_as_bytes(chunk))
            chunks.popleft()
        return b"".join(run) if len(run) > 1 else first

    def _send_region(self, sock: socket.socket, pending: _PendingRegion) -> int:
        region = pending.region
        count = min(region.size - pending.sent, SENDFILE_BYTES_MAX)
        file = region.fileno()
        if file is None:
            sent = sock.send(_read(region, pending.sent, min(count, JOINED_BYTES_MAX)), _FLAGS)
        else:
            sent = _sendfile(sock, file, region.position + pending.sent, count)
            if not sent:
                raise _lost(region, "the file is too short")
        pending.sent += sent
        self.unsent_bytes -= sent
        if pending.sent == region.size:
            self._chunks.popleft()
        return sent


def _as_bytes(chunk: bytes | bytearray | memoryview | _PendingRegion) -> bytes | bytearray | memoryview:
    if isinstance(chunk, _PendingRegion):
        return _read(chunk.region, 0, chunk.region.size)
    return chunk


def _read(region: Region, start: int, count: int) -> bytes:
    try:
        data = region.read(start, count)
    except OSError as error:
        raise _lost(region, str(error)) from error
    if len(data) != count:
        raise _lost(region, "the file is too short")
    return data


def _sendfile(sock: socket.socket, file: int, position: int, count: int) -> int:
    try:
        return os.sendfile(sock.fileno(), file, position, count)
    except OSError as error:
        if error.errno == errno.EIO:
            raise RegionLostError(f"reading {count} bytes at {position} of a file failed: {error}") from error
        raise


def _lost(region: Region, why: str) -> RegionLostError:
    return RegionLostError(f"{region.size} bytes at {region.position} of a file cannot be sent: {why}")
