"""Virtual time, and event loops that share it: one per simulated machine, so that each can be stopped or killed alone.

Nothing waits: when no callback is ready, time jumps to the next timer. Callbacks run one at a time, in the order in
which they became due, so the same calls always give the same run. A callback takes no time, and a program that never
lets time pass is stuck, which is an error.

A loop is what `asyncio` code on one machine sees. `freeze` is SIGSTOP: what is due meanwhile runs after `thaw`, late.
`kill` is SIGKILL: nothing of it runs ever again, not even a `finally`.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import deque
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, Unpack

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CALLBACKS_PER_INSTANT_MAX = 200_000
_ADDRESS = re.compile(r"\S*x[0-9a-f]{8,}")
"""Where an object lies in memory differs from run to run."""
_BLOCKING_CALL_S_MAX = 0.004


class SimulationStuck(Exception):  # noqa: N818 - named for what it reports
    """Nothing is left to do while somebody waits, or time does not pass any more."""


class Timeline:
    """What is ready now and what comes later, over all loops."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.on_step: Callable[[SimLoop], None] | None = None
        """Called after every callback with the loop that ran it."""
        self._ready: deque[tuple[SimLoop, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, SimLoop, asyncio.TimerHandle]] = []
        self._sequence = 0
        self._at_this_instant = 0

    def soon(self, loop: SimLoop, handle: asyncio.Handle) -> None:
        self._ready.append((loop, handle))

    def at(self, when: float, loop: SimLoop, handle: asyncio.TimerHandle) -> None:
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, loop, handle))

    def step(self) -> bool:
        """Runs the next callback; False if there is none."""
        if self._ready:
            loop, handle = self._ready.popleft()
            self._at_this_instant += 1
            if self._at_this_instant > _CALLBACKS_PER_INSTANT_MAX:
                raise SimulationStuck(f"time stands still at {self.now:g} s: {handle!r} runs again and again")
        elif self._timers:
            when, _sequence, loop, handle = heapq.heappop(self._timers)
            if when > self.now:
                self.now = when
                self._at_this_instant = 0
        else:
            return False
        if handle.cancelled() or loop.dead:
            return True
        if loop.frozen:
            loop.backlog.append(handle)
            return True
        self.steps += 1
        loop.run_handle(handle)
        if self.on_step is not None:
            self.on_step(loop)
        return True

    def run_until(self, when: float) -> None:
        """Runs everything that is due before `when`, and leaves time there."""
        while self._ready or (self._timers and self._timers[0][0] <= when):
            self.step()
        self.now = max(self.now, when)

    def run_until_done(self, future: asyncio.Future[T], within_s: float) -> T:
        """Runs until `future` is done and gives its result."""
        deadline = self.now + within_s
        while not future.done():
            if self.now > deadline or not self.step():
                raise SimulationStuck(f"{future!r} was not done after {within_s:g} s of simulated time")
        return future.result()


class SimTask(asyncio.Task[T]):
    """A task whose place in a set does not depend on where in memory it lies."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[T]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class SimThreads(Executor):
    """A thread pool without threads: its work goes through a simulated loop, which does it at some later moment."""

    def __init__(self) -> None:
        self.jobs = 0
        """Given, and not yet done."""

    def submit(self, *_arguments: object, **_keywords: object) -> NoReturn:
        raise AssertionError("work for threads goes through the loop")


class SimLoop(asyncio.AbstractEventLoop):
    """One machine's event loop. It has timers, tasks and a thread pool, but no sockets: those are the network's."""

    def __init__(self, timeline: Timeline, name: str, chance: random.Random) -> None:
        self.name = name
        self.frozen = False
        self.dead = False
        self.backlog: list[asyncio.Handle] = []
        """What became due while the loop was frozen."""
        self.failures: list[str] = []
        """What nobody caught: our own bugs."""
        self._timeline = timeline
        self._chance = chance
        self._numbers = 0
        self._tasks: dict[int, SimTask[Any]] = {}
        """Held until they are done: a killed machine's tasks must not be cleaned up while the simulation runs."""

    # -- what happens to machines -------------------------------------------------------------------------------

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        backlog, self.backlog = self.backlog, []
        for handle in backlog:
            self._timeline.soon(self, handle)

    def kill(self) -> None:
        self.dead = True
        self.backlog.clear()

    def discard(self) -> None:
        """After the simulation: lets go of what a killed loop still holds, whatever its tasks say to that."""
        self.dead = True
        tasks, self._tasks = list(self._tasks.values()), {}
        asyncio._set_running_loop(self)  # what is cleaned up believes to be at home  # noqa: SLF001
        try:
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - as asyncio itself does
                coroutine = task.get_coro()
                with suppress(BaseException):
                    coroutine.close()
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def run_handle(self, handle: asyncio.Handle) -> None:
        asyncio._set_running_loop(self)  # noqa: SLF001 - provided for event loops
        try:
            handle._run()  # noqa: SLF001 - how every event loop runs one
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    # -- AbstractEventLoop --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._timeline.now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self._timeline.soon(self, handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._timeline.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            self._timeline.at(max(when, self._timeline.now), self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        self._numbers += 1
        future.number = self._numbers
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> SimTask[T]:
        task: SimTask[T] = SimTask(coro, loop=self, name=name, context=context)
        self._numbers += 1
        task.number = self._numbers
        self._tasks[task.number] = task
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        assert isinstance(task, SimTask)
        self._tasks.pop(task.number, None)

    def run_in_executor(  # type: ignore[override] # the real one takes bound argument types, which nobody here needs
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs `func` at some later moment, in this thread: that it is done and that it is told may come apart."""
        future: asyncio.Future[T] = self.create_future()
        pool = executor if isinstance(executor, SimThreads) else SimThreads()
        pool.jobs += 1
        self.call_later(self._chance.uniform(0.0, _BLOCKING_CALL_S_MAX), self._block, pool, future, func, args)
        return future

    def _block(
        self, pool: SimThreads, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]
    ) -> None:
        pool.jobs -= 1
        settle: Callable[[], None]
        try:
            settle = partial(_resolve, future, func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            settle = partial(_reject, future, error)
        self.call_later(self._chance.uniform(0.0, _BLOCKING_CALL_S_MAX), settle)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            text = f"{context.get('message')}: {context.get('exception')!r}"
            self.failures.append(_ADDRESS.sub("", text))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def run_forever(self) -> NoReturn:
        raise NotImplementedError("the timeline runs all loops")


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
