"""One queue, one event at a time: while one is being dealt with, nothing that it has read changes under it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

T = TypeVar("T")

REQUESTS_MAX = 10_000
"""What others ask for and waits. Beyond it they are told to come again, rather than to wait for ever."""


class EventQueue:
    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        """`on_failure` hears of every event that failed otherwise than by refusing what was asked."""
        self._on_failure = on_failure
        self._waiting: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._awake = asyncio.Event()
        self._busy = False
        self._idle: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")

    async def stop(self) -> None:
        """What waits is not done any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        for _event, done in self._waiting:
            done.cancel()
        self._waiting.clear()
        self._tell_idle()

    def post(self, event: Callable[[], Awaitable[None]]) -> None:
        """Puts something into the queue that nobody waits for."""
        self._put(event)

    async def ask(self, event: Callable[[], Awaitable[T]]) -> T:
        """Waits until the event has been dealt with. Raises what it raises; a refusal when the queue is full."""
        if len(self._waiting) >= REQUESTS_MAX:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "the controller is busy: try again")
        # Whoever goes away does not undo what has begun.
        answer: T = await asyncio.shield(self._put(event))
        return answer

    async def idle(self) -> None:
        """Waits until there is nothing to do."""
        if self._busy or self._waiting:
            done = asyncio.get_running_loop().create_future()
            self._idle.append(done)
            await done

    def _put(self, event: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((event, done))
        self._awake.set()
        return done

    async def _run(self) -> None:
        while True:
            while self._waiting:
                self._busy = True
                await self._deal_with(*self._waiting.popleft())
            self._busy = False
            self._tell_idle()
            self._awake.clear()
            await self._awake.wait()

    async def _deal_with(self, event: Callable[[], Awaitable[Any]], done: asyncio.Future[Any]) -> None:
        try:
            result = await event()
        except BrokerError as error:
            _fail(done, error)
        except asyncio.CancelledError:
            done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - the task's top frame: whoever waits must hear of it
            _fail(done, error)
            self._on_failure(error)
        else:
            if not done.done():
                done.set_result(result)

    def _tell_idle(self) -> None:
        idle, self._idle = self._idle, []
        for waiting in idle:
            if not waiting.done():
                waiting.set_result(None)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # nobody may be waiting
