"""One event loop in a thread of its own, for all clients of a process that do not await.

It starts with the first client. At the end of the program what is still open is closed, and then the loop. A forked
child begins without it: its parent's clients are of no use there, as connections cannot be shared.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # also so that it has registered its end before ours
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, ParamSpec, Protocol, TypeVar

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

_CLOCK: Final = SystemClock()
_EXIT_WITHIN_S: Final = 10.0
"""For closing everything when the program ends."""

_LET_GO_WITHIN_S: Final = 2.0
"""For work that is cancelled to leave everything in order."""


class Closable(Protocol):
    def close(self) -> None: ...


class _Call(Generic[T]):
    """Work in the loop that another thread waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.outcome: Future[T] = Future()

    def begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._give_up()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())

    def cancel(self) -> None:
        """Waits for the work to come to an end: what is done next must not meet it half done."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._cancel)
            concurrent.futures.wait([self.outcome], _LET_GO_WITHIN_S)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._work.close()
            self._give_up()

    def _give_up(self) -> None:
        self.outcome.cancel()
        self.outcome.set_running_or_notify_cancel()


class LoopThread:
    _shared: ClassVar[LoopThread | None] = None
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="tidelog clients", daemon=True)
        self._open: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._ends_at_s: float | None = None
        self._thread.start()

    @classmethod
    def shared(cls) -> LoopThread:
        with cls._starting:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all())
        finally:
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for what it gives. Ctrl-C cancels it."""
        self._check_usable(work)
        call = _Call(self._loop, work)
        try:
            self._loop.call_soon_threadsafe(call.begin)
            return call.outcome.result(self.patience_s)
        except BaseException:
            if not call.outcome.done():
                call.cancel()
            raise

    @property
    def patience_s(self) -> float | None:
        """How long anything may take: for ever, until the program ends."""
        return None if self._ends_at_s is None else max(0.0, self._ends_at_s - _CLOCK.monotonic())

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        self._check_usable(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check_usable(self, work: Coroutine[Any, Any, Any]) -> None:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a blocking client was used where its own event loop runs, such as in a callback of a delivery, which "
                "would wait for itself for ever: hand the work to another thread"
            )
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the program is ending: its blocking clients are closed")

    def iterate(self, items: AsyncGenerator[T, None] | AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iteration gives, one after the other."""

        async def following() -> tuple[T] | None:
            async for item in items:
                return (item,)
            return None

        try:
            while (found := self.run(following())) is not None:
                yield found[0]
        finally:
            if isinstance(items, AsyncGenerator):
                self.run(items.aclose())

    def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Does it between two steps of the loop, so that it sees nothing half done."""

        async def once() -> T:
            return work(*args, **kwargs)

        return self.run(once())

    def soon(self, work: Callable[[], object]) -> None:
        """Does it in the loop, without waiting."""
        self._loop.call_soon_threadsafe(work)

    def keep(self, client: Closable) -> None:
        """Closes it at the end of the program, if nobody did before."""
        self._open.add(client)

    def forget(self, client: Closable) -> None:
        self._open.discard(client)

    @classmethod
    def end_shared(cls) -> None:
        shared, cls._shared = cls._shared, None
        if shared is not None:
            shared.end()

    @classmethod
    def begin_anew(cls) -> None:
        cls._shared = None
        cls._starting = threading.Lock()

    def end(self) -> None:
        self._ends_at_s = _CLOCK.monotonic() + _EXIT_WITHIN_S
        for client in list(self._open):
            # Whatever it is, the program's end is not held up by it, and nobody is left to be told.
            with contextlib.suppress(Exception):
                client.close()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_EXIT_WITHIN_S)


async def _end_all() -> None:
    """Cancels what is left, so that whoever waits for it in another thread goes on, and the program ends."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_LET_GO_WITHIN_S)


# Before Python ends the pools of threads, which look up names for connections: the last to register comes first, and
# the pools register when this module imports them.
_register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(LoopThread.end_shared)
os.register_at_fork(after_in_child=LoopThread.begin_anew)
