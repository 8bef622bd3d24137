"""One event loop in a thread of its own, for all clients of a process that do not await.

It starts with the first client. At the end of the program what is still open is closed, and then the loop. A forked
child begins without it: its parent's clients are of no use there, as connections cannot be shared.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - so that it has registered its end before ours
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, Protocol, TypeVar

from tidelog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from concurrent.futures import Future

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

_CLOCK: Final = SystemClock()
_EXIT_WITHIN_S: Final = 10.0
"""For closing everything when the program ends."""


class Closable(Protocol):
    def close(self) -> None: ...


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
        finally:
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for what it gives. Ctrl-C cancels it."""
        future = self.start(work)
        try:
            return future.result(self.patience_s)
        except BaseException:
            future.cancel()
            raise

    @property
    def patience_s(self) -> float | None:
        """How long anything may take: for ever, until the program ends."""
        return None if self._ends_at_s is None else max(0.0, self._ends_at_s - _CLOCK.monotonic())

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a blocking client was used where its own event loop runs, such as in a callback of a delivery, which "
                "would wait for itself for ever: hand the work to another thread"
            )
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the program is ending: its blocking clients are closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

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


# Before Python ends the pools of threads, which look up names for connections: the last to register comes first, and
# the pools register when this module imports them.
_register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(LoopThread.end_shared)
os.register_at_fork(after_in_child=LoopThread.begin_anew)
