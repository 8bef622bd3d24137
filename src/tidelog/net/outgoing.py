"""What a service may answer to a frame: a reply now, a reply later, none, or the end of the connection.

An `Outgoing` reply carries file regions beside its bytes, so that record batches go from the page cache to the socket
without passing through Python.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio


class Region(Protocol):
    """A run of bytes in a file, kept readable for as long as the object lives."""

    @property
    def size(self) -> int: ...

    @property
    def position(self) -> int:
        """Where the run starts in the file that `fileno` names."""

    def fileno(self) -> int | None:
        """The open file to send from, or None when the bytes can only be had by `read`."""

    def read(self, start: int = 0, count: int | None = None) -> bytes:
        """`count` bytes (all the rest if None) from `start`, counted from the beginning of the run."""


class Outgoing(NamedTuple):
    """One whole reply frame, its four-byte length included.

    Each `(position, region)` of `splices` stands for the region's bytes inserted before `data[position]`; positions
    ascend. The length at the front counts them too.
    """

    data: bytes | bytearray
    splices: Sequence[tuple[int, Region]] = ()

    @property
    def size(self) -> int:
        return len(self.data) + sum(region.size for _, region in self.splices)


class NoReply(Enum):
    NO_REPLY = "no reply"
    CLOSE = "close after the earlier replies"


NO_REPLY: Final[Literal[NoReply.NO_REPLY]] = NoReply.NO_REPLY
"""Nothing is sent for this frame (a produce request with acks=0)."""

CLOSE: Final[Literal[NoReply.CLOSE]] = NoReply.CLOSE
"""Nothing is sent, and the connection is closed once the replies to earlier frames are out."""

Reply: TypeAlias = Outgoing | NoReply


@dataclass(slots=True)
class Parked:
    """The frame is dealt with and no longer needed; only its reply is outstanding.

    Frames behind it are handled meanwhile, their replies wait for this one. The future is cancelled when the
    connection closes first, so who resolves it looks whether it is done already.
    """

    future: asyncio.Future[Reply]


class CloseConnection(Exception):  # noqa: N818 - an instruction, not a failure of ours
    """Raised by a service instead of answering: close the connection, and log why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


Outcome: TypeAlias = Outgoing | NoReply | Parked | Coroutine[Any, Any, Reply | Parked]
"""A coroutine may go on reading the frame; the connection's next frame waits until it has returned."""
