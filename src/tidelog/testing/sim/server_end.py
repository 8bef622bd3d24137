"""The broker's end of a simulated connection: hands frames to the router and puts replies back in order.

It keeps the promises of `net/connection.py` that handlers rely on: one frame at a time while a coroutine is at work,
parked replies that hold up only what comes after them, and parked futures cancelled when the peer goes away.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.handlers.session import Session
from tidelog.net.outgoing import CLOSE, CloseConnection, NoReply, Outgoing, Parked
from tidelog.net.reply_order import ReplyOrder

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tidelog.net.outgoing import Outcome, Reply
    from tidelog.testing.sim.timeline import SimLoop

logger = logging.getLogger(__name__)

LISTENER = "PLAINTEXT"
_LENGTH_BYTES = 4


class FrameService(Protocol):
    """As `broker/router.py` is."""

    def handle(self, connection: Any, frame: memoryview) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class PeerAddress:
    host: str
    port: int = 0


class ServerEnd:
    def __init__(
        self,
        loop: SimLoop,
        service: FrameService,
        peer: str,
        peer_broker: int | None,
        send: Callable[[bytes], None],
        hang_up: Callable[[], None],
    ) -> None:
        self.listener_name = LISTENER
        self.peer = PeerAddress(peer)
        self.service_state = Session()
        self.service_state.peer_broker = peer_broker
        self._loop = loop
        self._service = service
        self._send = send
        self._hang_up = hang_up
        self._frames: deque[bytearray] = deque()
        self._order = ReplyOrder()
        self._busy = False
        self._closed = False

    def receive(self, frame: bytearray) -> None:
        self._frames.append(frame)
        self._handle_frames()

    def close(self) -> None:
        """The peer has gone."""
        if not self._closed:
            self._closed = True
            self._frames.clear()
            self._order.abandon(self._on_reply)

    def _handle_frames(self) -> None:
        while self._frames and not self._busy and not self._closed:
            frame = self._frames.popleft()
            try:
                outcome = self._service.handle(self, memoryview(frame))
            except CloseConnection as instruction:
                logger.info("connection of %s closed: %s", self.peer.host, instruction.reason)
                self._refuse()
                return
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        if isinstance(outcome, Outgoing):
            self._order.add(outcome)
            self._flush()
        elif isinstance(outcome, Parked):
            self._order.add(outcome.future)
            outcome.future.add_done_callback(self._on_reply)
        elif isinstance(outcome, NoReply):
            if outcome is CLOSE:
                self._refuse()
        else:
            self._busy = True
            self._loop.create_task(outcome).add_done_callback(self._on_answer)

    def _on_answer(self, task: asyncio.Task[Reply | Parked]) -> None:
        self._busy = False
        if self._closed:
            return
        error = task.exception()
        if isinstance(error, CloseConnection):
            self._refuse()
        elif error is not None:
            raise error
        else:
            self._take(task.result())
            self._handle_frames()

    def _on_reply(self, _future: asyncio.Future[Reply]) -> None:
        self._flush()

    def _flush(self) -> None:
        while not self._closed and (entry := self._order.pop_ready()) is not None:
            reply = entry if isinstance(entry, Outgoing) else entry.result()
            if isinstance(reply, Outgoing):
                self._send(_joined(reply)[_LENGTH_BYTES:])
            elif reply is CLOSE:
                self._refuse()

    def _refuse(self) -> None:
        self.close()
        self._hang_up()


def _joined(reply: Outgoing) -> bytes:
    """The frame with the records that lie in files."""
    if not reply.splices:
        return bytes(reply.data)
    pieces: list[bytes | bytearray] = []
    done = 0
    for position, region in reply.splices:
        pieces += (reply.data[done:position], region.read())
        done = position
    pieces.append(reply.data[done:])
    return b"".join(pieces)
