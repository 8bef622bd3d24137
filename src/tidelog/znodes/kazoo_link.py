"""The connection to ZooKeeper: kazoo's thread on one side, the event loop on the other.

kazoo reads, writes and keeps the session alive on a thread of its own, even while the event loop is busy. What it has
to say (answers, watch events, states of the session) crosses to the loop in the order in which it happened, all
through one queue. What the loop has to say is taken only as long as both sides agree on the state of the session: a
request that was written in one session is never sent in the next.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.states import KazooState, KeeperState  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]

from tidelog.znodes.store import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FIRST_RETRY_S = 0.05
_RETRY_MAX_S = 1.0
_REVIVE_AFTER_S = 1.0
_ANSWER_WITHIN_S = (1.0, 5.0)
"""At least and at most; between them, a third of the session."""

logger = logging.getLogger(__name__)
_kazoo_logger = logging.getLogger("tidelog.znodes.kazoo")
# It tells of each attempt to connect, and in detail of each request, with passwords. The session says what matters.
_kazoo_logger.setLevel(logging.ERROR)

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class Link:
    """`hear_state` is called on the loop with each new state of the session and the session's id."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        session_timeout_ms: int,
        digest: tuple[str, str] | None,
        hear_state: Callable[[SessionState, int], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox(self._loop)
        self._hear_state = hear_state
        self._lock = threading.Lock()
        self._turns = 0
        """Changes of the session's state, as the connection's thread knows them."""
        self._turns_heard = 0
        """The same, as the loop knows them."""
        self._closing = False
        self._handler = _InOrderHandler(
            answer_within_s=sorted((session_timeout_ms / 1000 / 3, *_ANSWER_WITHIN_S))[1],
            thread_ended=lambda: self._inbox.put(self._on_end),
        )
        self._client: Any = KazooClient(
            hosts=",".join(servers),
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            auth_data=[("digest", ":".join(digest))] if digest else None,
            connection_retry=KazooRetry(max_tries=-1, delay=_FIRST_RETRY_S, max_delay=_RETRY_MAX_S),
            logger=_kazoo_logger,
        )
        self._client.add_listener(self._on_state)

    @property
    def failures(self) -> dict[str, str]:
        """What the last attempt to reach each server ended with, if it failed."""
        return dict(self._handler.failures)

    def start(self) -> None:
        self._client.start_async()

    def send(self, request: Any, answered: Callable[[Any, Exception | None], None]) -> None:
        """`answered` is called on the loop, once or, if the state of the session changes meanwhile, perhaps never."""
        with self._lock:
            if self._turns == self._turns_heard:
                self._client._call(request, _Reply(self._inbox, answered))  # noqa: SLF001 - see the decision record

    def later(self, call: Callable[..., None], *arguments: Any) -> None:
        """Calls on the loop, in order with everything else. For what kazoo calls on its thread."""
        self._inbox.put(call, *arguments)

    async def close(self, within_s: float) -> None:
        """Ends the session if the servers can be reached, and the thread in any case, if need be later."""
        self._closing = True
        ended = self._loop.create_future()
        # Not one of the loop's own threads: these are waited for without a limit when the loop ends.
        threading.Thread(target=self._end, args=(ended,), name="zookeeper-end", daemon=True).start()
        await asyncio.wait([ended], timeout=within_s)

    def _end(self, ended: asyncio.Future[None]) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001 - the top frame of a thread; what is left over ends with the process
            logger.warning("the connection to ZooKeeper did not end in order: %r", error)
        self._inbox.put(_finish, ended)

    def _on_state(self, state: str) -> None:
        """Runs on kazoo's thread."""
        with self._lock:
            self._turns += 1
            self._inbox.put(self._hear, state, self._client._session_id, self._turns)  # noqa: SLF001
        if state == KazooState.SUSPENDED:
            # kazoo would keep what came in until it is connected again. By then, whoever asked has been told otherwise.
            self._client._notify_pending(KeeperState.CONNECTING)  # noqa: SLF001

    def _hear(self, state: str, session_id: int | None, turn: int) -> None:
        self._turns_heard = turn
        self._hear_state(_STATES[state], session_id or 0)

    def _on_end(self) -> None:
        """kazoo gives up when it is refused or does not understand its server. A session that expired is no reason."""
        if not self._closing:
            self._loop.call_later(_REVIVE_AFTER_S, self._revive)

    def _revive(self) -> None:
        if not self._closing:
            logger.warning("the connection to ZooKeeper broke down: beginning a new session")
            self._client.start_async()


class Inbox:
    """Calls made on another thread, done on the loop in their order; one wake-up serves all that have come by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._woken = False

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        self._calls.append((call, arguments))
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                return  # the loop is closed, so nobody waits for anything any more

    def _empty(self) -> None:
        # Before looking: what comes after the look wakes the loop again.
        self._woken = False
        for _ in range(len(self._calls)):
            call, arguments = self._calls.popleft()
            call(*arguments)


class _Reply:
    """Where kazoo puts an answer, on its thread."""

    __slots__ = ("_answered", "_inbox")

    def __init__(self, inbox: Inbox, answered: Callable[[Any, Exception | None], None]) -> None:
        self._inbox = inbox
        self._answered = answered

    def set(self, value: Any = None) -> None:
        self._inbox.put(self._answered, value, None)

    def set_exception(self, error: Exception) -> None:
        self._inbox.put(self._answered, None, error)


class _InOrderHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, without those that call back.

    kazoo has a thread for answers and another one for watches, which may overtake each other. Here both are called on
    the thread that read them from the connection, which is short work: they only go on to the event loop.
    """

    def __init__(self, answer_within_s: float, thread_ended: Callable[[], None]) -> None:
        super().__init__()
        self._answer_within_s = answer_within_s
        self.failures: dict[str, str] = {}
        self._thread_ended = thread_ended

    def start(self) -> None:
        """There are no threads to start."""

    def stop(self) -> None:
        """There are no threads to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def spawn(self, func: Callable[..., None], *args: Any, **options: Any) -> threading.Thread:
        """Starts the connection's thread."""

        def run() -> None:
            try:
                func(*args, **options)
            except Exception:
                logger.exception("the connection to ZooKeeper broke down")
            self._thread_ended()

        thread = threading.Thread(target=run, name="zookeeper", daemon=True)
        thread.start()
        return thread

    def create_socket_pair(self) -> tuple[Any, Any]:
        """How the thread is woken. kazoo takes two sockets, which would block the loop when they are full."""
        wakeups = _Wakeups()
        return wakeups, wakeups

    def create_connection(self, *args: Any, **options: Any) -> Any:
        host, port = options["hostname"], options["address"][1]
        try:
            connection = super().create_connection(*args, **options)
        except OSError as error:
            self.failures[f"{host}:{port}"] = error.strerror or str(error)
            raise
        self.failures.pop(f"{host}:{port}", None)
        return connection

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """kazoo's own makes and closes an epoll descriptor each time, several times for each request.

        It reads from one alone when it waits for the answer to its greeting, or for the rest of a message. A server
        that is just starting may take a connection and forget it, and kazoo would wait for as long as the session
        lasts: better to try again while it still does.
        """
        if timeout is not None and not writers and len(readers) == 1:
            timeout = min(timeout, self._answer_within_s)
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        for writer in writers:
            poll.register(writer, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(None if timeout is None else math.ceil(timeout * 1000))}
        return (
            [reader for reader in readers if reader.fileno() in ready],
            [writer for writer in writers if writer.fileno() in ready],
            [],
        )


class _Wakeups:
    """Both ends of a pipe for single bytes, as a counter: any number of them fits in."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def send(self, data: bytes) -> int:
        os.eventfd_write(self._descriptor, len(data))
        return len(data)

    def recv(self, _: int) -> bytes:
        os.eventfd_read(self._descriptor)
        return b"\0"

    def close(self) -> None:
        """Called for either end."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _finish(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
