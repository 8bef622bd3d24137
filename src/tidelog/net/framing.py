"""Frames on the wire: a signed 32-bit big-endian length, then that many bytes. No sockets here.

A length is checked before anything is kept for the frame it announces.
"""

from __future__ import annotations

from struct import Struct

LENGTH = Struct(">i")
LENGTH_BYTES = LENGTH.size

# The smallest length that another protocol's opening bytes can spell (a TLS record, 0x16 0x03 ...). Nobody opens a
# connection with a frame that large, whatever the limit says.
FOREIGN_LENGTH_MIN = 0x1603_0000

_HTTP_OPENINGS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN", b"PATC", b"TRAC", b"PRI ")


class FrameError(Exception):
    """The peer announced a frame that cannot be one. The message says what was probably meant."""


def bad_length(length: int, max_bytes: int, *, first: bool) -> FrameError | None:
    """Why a frame of `length` bytes is refused, or None. `first`: it would be the first of its connection."""
    if 0 <= length <= max_bytes and not (first and length >= FOREIGN_LENGTH_MIN):
        return None
    if first:
        opening = LENGTH.pack(length)
        if opening[:2] == b"\x16\x03":
            return FrameError(
                "the peer speaks TLS but this listener is plaintext: "
                "set security.protocol=PLAINTEXT on the client, or connect to a TLS listener"
            )
        if opening in _HTTP_OPENINGS:
            return FrameError("the peer speaks HTTP but this port speaks Kafka's protocol: it is not a web server")
    if length < 0:
        return FrameError(f"negative frame length {length}: the peer does not speak Kafka's protocol")
    if length > max_bytes:
        return FrameError(
            f"a frame of {length} bytes exceeds socket.request.max.bytes = {max_bytes}: "
            "send smaller requests, or raise that limit if the peer is trusted"
        )
    return FrameError(f"the first frame claims {length} bytes: the peer does not speak Kafka's protocol")


class FrameDecoder:
    """Cuts a byte stream into frames, however the stream is chopped up."""

    __slots__ = ("_first", "_held", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._first = True

    @property
    def held_bytes(self) -> int:
        """Bytes kept of a frame that is not complete yet, its length prefix included."""
        return len(self._held)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The frames that `data` completes, without their length prefixes."""
        held = self._held
        held += data
        frames: list[bytes] = []
        start = 0
        while len(held) - start >= LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(held, start)
            error = bad_length(length, self._max_bytes, first=self._first)
            if error is not None:
                raise error
            stop = start + LENGTH_BYTES + length
            if stop > len(held):
                break
            frames.append(bytes(memoryview(held)[start + LENGTH_BYTES : stop]))
            self._first = False
            start = stop
        if start:
            del held[:start]
        return frames
