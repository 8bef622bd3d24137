"""One accepted connection: receives frames, has them answered, and sends the replies in request order.

Everything happens in callbacks of the event loop on a non-blocking socket. Frames are handled one after the other;
while any bit of `_held` is set none is, and the peer is no longer read, which is the back-pressure. A reply that must
wait for an earlier one waits in `_pending`; what only the socket holds up waits in the send queue.
"""

from __future__ import annotations

import asyncio
import logging
from socket import SHUT_WR
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tidelog.net.address import Address
from tidelog.net.framing import FrameError
from tidelog.net.outgoing import CLOSE, NO_REPLY, CloseConnection, NoReply, Outgoing, Parked
from tidelog.net.receive_buffer import ReceiveBuffer
from tidelog.net.reply_order import ReplyOrder
from tidelog.net.send_queue import RegionLostError, SendQueue

if TYPE_CHECKING:
    import socket

    from tidelog.net.outgoing import Outcome, Reply
    from tidelog.net.service import Host

_log = logging.getLogger("tidelog.net")

# Why no further frame is handled for now.
_TURN = 1  # others first: the frames of one turn are used up
_TASK = 2  # a coroutine is at work on a frame
_PARKED = 4  # too many replies are outstanding
_OUTPUT = 8  # too many reply bytes are unsent
_MUTED = 16  # throttled
_FINISHING = 32  # closes once the replies in progress are out
_CUT = 64  # a reply is missing: none may be sent after it
_CLOSED = 128

_RECEIVES_PER_TURN = 4

_Result = TypeVar("_Result")


class Connection:
    __slots__ = (
        "_active",
        "_fd",
        "_held",
        "_host",
        "_inbound",
        "_linger",
        "_mute",
        "_outbound",
        "_pending",
        "_quiet_since",
        "_reading",
        "_sock",
        "_task",
        "_writing",
        "peer",
        "service_state",
    )

    def __init__(self, sock: socket.socket, peer: Address, host: Host, now: float) -> None:
        self.peer = peer
        self.service_state: Any = None
        """For the service to keep what it knows of this connection."""

        self._host = host
        self._sock = sock
        self._fd = sock.fileno()
        self._inbound = ReceiveBuffer(host.scratch, host.limits.frame_bytes_max)
        self._outbound = SendQueue()
        self._pending = ReplyOrder()
        self._task: asyncio.Task[Reply | Parked] | None = None
        self._mute: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._held = 0
        self._active = False
        self._quiet_since = now
        self._writing = False
        self._reading = True
        host.loop.add_reader(self._fd, self._on_readable)

    def __repr__(self) -> str:
        return f"<Connection of {self.peer} to {self.listener_name}>"

    @property
    def listener_name(self) -> str:
        return self._host.listener_name

    @property
    def local(self) -> Address:
        """Our end, as the peer reached it."""
        return Address.of(self._sock.getsockname())

    @property
    def closed(self) -> bool:
        return bool(self._held & _CLOSED)

    @property
    def unsent_bytes(self) -> int:
        """Reply bytes held for this connection: unsent, or finished but behind a reply that is not."""
        return self._outbound.unsent_bytes + self._pending.finished_bytes

    @property
    def reading(self) -> bool:
        """Whether the peer's bytes are taken from the socket as they come."""
        return not self._held

    def close(self, reason: str = "closed by the broker") -> None:
        """Closes at once. Parked replies are cancelled; a coroutine at work finishes what it began, unanswered."""
        if self._held & _CLOSED:
            return
        self._held |= _CLOSED
        loop = self._host.loop
        if self._reading:
            self._reading = False
            loop.remove_reader(self._fd)
        if self._writing:
            self._writing = False
            loop.remove_writer(self._fd)
        for timer in (self._mute, self._linger):
            if timer is not None:
                timer.cancel()
        self._sock.close()
        self._outbound.clear()
        self._pending.abandon(self._on_reply)
        _log.debug("connection of %s to %s: %s", self.peer, self.listener_name, reason)
        self._host.on_closed(self)

    def finish(self) -> None:
        """Closes once the replies in progress are out. No further frame is handled."""
        if not self._held & (_CLOSED | _FINISHING):
            self._held |= _FINISHING
            self._finish_if_done()

    def mute(self, seconds: float) -> None:
        """Reads nothing from the peer for so long (KIP-219 throttling). A longer mute in force stays."""
        if self._held & _CLOSED:
            return
        loop = self._host.loop
        until = loop.time() + seconds
        if self._mute is not None:
            if self._mute.when() >= until:
                return
            self._mute.cancel()
        self._held |= _MUTED
        self._mute = loop.call_at(until, self._unmute)

    def sweep(self, now: float) -> None:
        """Told the time every few seconds: gives up unused memory, and closes when idle for too long.

        Idle is who moves no byte while nothing of ours is outstanding, or who does not take what we send.
        """
        if self._active:
            self._active = False
            self._quiet_since = now
            return
        if self._task is None:
            self._inbound.shrink()
        if not self._outbound.unsent_bytes and (self._pending.entries or self._held & (_TASK | _MUTED)):
            self._quiet_since = now
            return
        timeout_s = self._host.limits.idle_timeout_s
        if timeout_s is not None and now - self._quiet_since >= timeout_s:
            if self._outbound.unsent_bytes:
                self._complain("stuck peer", f"closed: it took none of its replies for {timeout_s:g} s")
            self.close(f"idle for {timeout_s:g} s")

    # Receiving

    def _on_readable(self) -> None:
        if self._held:
            # Data came while we take none. Only now is it worth telling the event loop.
            self._reading = False
            self._host.loop.remove_reader(self._fd)
            return
        inbound = self._inbound
        for _ in range(_RECEIVES_PER_TURN):
            space = inbound.space()
            try:
                count = self._sock.recv_into(space)
            except BlockingIOError:
                inbound.settle()
                break
            except OSError as error:
                self.close(f"receiving failed: {error}")
                return
            if not count:
                self._end_turn()  # who has said everything may still be listening
                self.close("closed by the peer")
                return
            self._active = True
            inbound.received(count)
            self._handle_frames()
            if count < len(space) or self._held:
                break
        self._end_turn()

    def _handle_frames(self) -> None:
        """Handles the frames that are there until something holds the connection.

        Replies are left to the end of the turn: a send costs as much as handling a small request, and wakes the peer.
        """
        host = self._host
        handle = host.service.handle
        limits = host.limits
        frames_left = limits.frames_per_turn
        inbound = self._inbound
        outbound = self._outbound
        pending = self._pending.entries
        try:
            while not self._held:
                frame = inbound.next_frame()
                if frame is None:
                    break
                outcome = handle(self, frame)
                if type(outcome) is Outgoing and not pending:
                    outbound.put(outcome)
                    if outbound.unsent_bytes > limits.output_bytes_max:
                        self._send()
                else:
                    self._take(outcome)
                frames_left -= 1
                if not frames_left:
                    self._held |= _TURN
                    host.loop.call_soon(self._release, _TURN)
        except FrameError as error:
            self._complain("malformed frame", f"closed: {error}")
            self._held |= _FINISHING
        except CloseConnection as instruction:
            self._complain("refused request", f"closed: {instruction.reason}")
            self._held |= _FINISHING
        except Exception:  # noqa: BLE001 - the top frame of a request
            _log.exception("a request of %s crashed; its connection is closed", self.peer)
            self._held |= _FINISHING
        inbound.settle()

    def _end_turn(self) -> None:
        """Sends the replies that are ready, and closes if that was all there was to do."""
        if self._outbound.unsent_bytes:
            if self._writing:
                self._send()
            else:
                self._flush()
        if self._held & _FINISHING:
            self._finish_if_done()

    def _release(self, reason: int) -> None:
        """A reason to hold is gone: goes on with the frames already here, then with those to come."""
        held = self._held & ~reason
        self._held = held
        if held:
            self._end_turn()
            return
        self._handle_frames()
        self._end_turn()
        if not self._held and not self._reading:
            self._reading = True
            self._host.loop.add_reader(self._fd, self._on_readable)

    def _unmute(self) -> None:
        self._mute = None
        self._release(_MUTED)

    # Answering

    def _take(self, outcome: Outcome) -> None:
        if type(outcome) is Parked:
            self._park(outcome.future)
        elif type(outcome) is Outgoing or outcome is NO_REPLY or outcome is CLOSE:
            self._answer(outcome)
        elif isinstance(outcome, CoroutineType):
            # The frame must outlive this turn. It lies in memory that is now ours alone.
            self._inbound.hold()
            self._held |= _TASK
            self._task = task = self._host.loop.create_task(outcome)
            self._host.tasks.add(task)
            task.add_done_callback(self._on_task_done)
        else:
            raise TypeError(f"a service answered with {type(outcome).__name__}")

    def _park(self, future: asyncio.Future[Reply]) -> None:
        if self._held & (_CUT | _CLOSED):
            future.cancel()
            return
        self._pending.add(future)
        future.add_done_callback(self._on_reply)
        if len(self._pending.entries) >= self._host.limits.parked_max:
            self._held |= _PARKED

    def _answer(self, reply: Reply) -> None:
        """Puts a finished reply behind those that come before it."""
        if self._held & (_CUT | _CLOSED):
            return
        if isinstance(reply, Outgoing):
            if not self._pending.entries:
                self._outbound.put(reply)
                return
            self._pending.add(reply)
            if len(self._pending.entries) >= self._host.limits.parked_max:
                self._held |= _PARKED
            if self.unsent_bytes > self._host.limits.output_bytes_max:
                self._held |= _OUTPUT
        elif reply is CLOSE:
            self._held |= _FINISHING

    def _on_reply(self, _: asyncio.Future[Reply]) -> None:
        """A parked reply is there: sends all replies that wait for nothing any more."""
        while (entry := self._pending.pop_ready()) is not None:
            reply = entry if isinstance(entry, Outgoing) else self._result_of(entry)
            if isinstance(reply, Outgoing):
                self._outbound.put(reply)
            elif reply is CLOSE:
                self._pending.abandon(self._on_reply)
                self._held |= _FINISHING | _CUT
        if self._outbound.unsent_bytes:
            self._send()
        self._after_progress()

    def _on_task_done(self, task: asyncio.Task[Reply | Parked]) -> None:
        self._host.tasks.discard(task)
        self._task = None
        result = self._result_of(task)
        if isinstance(result, Parked):
            self._park(result.future)
        else:
            self._answer(result)
        self._release(_TASK)

    def _result_of(self, future: asyncio.Future[_Result]) -> _Result | Literal[NoReply.CLOSE]:
        """What a reply in progress came to; a crash comes to closing the connection."""
        try:
            return future.result()
        except CloseConnection as instruction:
            self._complain("refused request", f"closed: {instruction.reason}")
        except asyncio.CancelledError:
            _log.debug("a reply to %s was cancelled; its connection is closed", self.peer)
        except Exception:  # noqa: BLE001 - the top frame of a request
            _log.exception("a request of %s crashed; its connection is closed", self.peer)
        return CLOSE

    # Sending

    def _send(self) -> None:
        """Sends what is ready, unless the socket is known to be full."""
        if not self._writing:
            self._flush()
        elif self.unsent_bytes > self._host.limits.output_bytes_max:
            self._held |= _OUTPUT

    def _flush(self) -> None:
        """Gives the socket what it takes; the rest waits until it takes more."""
        try:
            sent = self._outbound.flush(self._sock)
        except OSError as error:
            self.close(f"sending failed: {error}")
            return
        except RegionLostError as error:
            _log.error("connection of %s closed in the middle of a reply: %s", self.peer, error)
            self.close("a file could not be sent")
            return
        if sent:
            self._active = True
        if self._outbound.unsent_bytes:
            if self.unsent_bytes > self._host.limits.output_bytes_max:
                self._held |= _OUTPUT
            if not self._writing:
                self._writing = True
                self._host.loop.add_writer(self._fd, self._on_writable)
        elif self._writing:
            self._writing = False
            self._host.loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self._flush()
        self._after_progress()

    def _after_progress(self) -> None:
        """Replies went out or came free: lifts the holds that this has made needless."""
        held = self._held
        if not held:
            return
        limits = self._host.limits
        lifted = 0
        if held & _PARKED and len(self._pending.entries) < limits.parked_max:
            lifted |= _PARKED
        if held & _OUTPUT and self.unsent_bytes <= limits.output_bytes_max // 2:
            lifted |= _OUTPUT
        if lifted:
            self._release(lifted)
        elif held & _FINISHING:
            self._finish_if_done()

    # Closing

    def _finish_if_done(self) -> None:
        if self._held & _CLOSED or self._linger is not None or self._pending.entries or self._outbound.unsent_bytes:
            return
        if self._task is None or self._held & _CUT:
            self._start_lingering()

    def _start_lingering(self) -> None:
        """Ends our side and waits for the peer's.

        To close with unread requests in the socket would reset the connection, and a reset may overtake the last
        replies.
        """
        host = self._host
        if not self._active or not host.limits.linger_s:
            self.close("finished")
            return
        try:
            self._sock.shutdown(SHUT_WR)
        except OSError as error:
            self.close(f"finishing failed: {error}")
            return
        self._linger = host.loop.call_later(host.limits.linger_s, self.close, "finished; the peer did not close")
        self._reading = True
        host.loop.add_reader(self._fd, self._discard)

    def _discard(self) -> None:
        try:
            count = self._sock.recv_into(self._host.scratch.view)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"receiving failed: {error}")
            return
        if not count:
            self.close("finished")

    def _complain(self, kind: str, message: str) -> None:
        self._host.complaints.warn(kind, f"connection of {self.peer} to {self.listener_name} {message}")
