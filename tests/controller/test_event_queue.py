"""One event at a time, in order, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.controller import event_queue
from tidelog.controller.event_queue import EventQueue
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def with_queue(story: Callable[[EventQueue, list[Exception]], Awaitable[None]]) -> None:
    async def main() -> None:
        failures: list[Exception] = []
        queue = EventQueue(failures.append)
        queue.start()
        await story(queue, failures)
        await queue.stop()

    asyncio.run(main())


def test_events_do_not_overlap() -> None:
    async def story(queue: EventQueue, _failures: list[Exception]) -> None:
        seen: list[tuple[int, str]] = []

        async def event(number: int) -> int:
            seen.append((number, "begins"))
            await asyncio.sleep(0)
            seen.append((number, "ends"))
            return number

        answers = await asyncio.gather(*(queue.ask(lambda at=at: event(at)) for at in range(3)))  # type: ignore[misc]
        assert answers == [0, 1, 2]
        assert seen == [(at, what) for at in range(3) for what in ("begins", "ends")]

    with_queue(story)


def test_refusals_go_to_who_asked_and_failures_to_who_watches_too() -> None:
    async def story(queue: EventQueue, failures: list[Exception]) -> None:
        async def refuse() -> None:
            raise BrokerError(ErrorCode.INVALID_REQUEST)

        async def fail() -> None:
            raise ZeroDivisionError

        with pytest.raises(BrokerError):
            await queue.ask(refuse)
        assert not failures
        with pytest.raises(ZeroDivisionError):
            await queue.ask(fail)
        queue.post(fail)
        await queue.idle()
        assert len(failures) == 2

    with_queue(story)


def test_whoever_goes_away_does_not_undo_what_has_begun() -> None:
    async def story(queue: EventQueue, _failures: list[Exception]) -> None:
        go_on, done = asyncio.Event(), asyncio.Event()

        async def event() -> None:
            await go_on.wait()
            done.set()

        asking = asyncio.ensure_future(queue.ask(event))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        go_on.set()
        await queue.idle()
        assert done.is_set()

    with_queue(story)


def test_a_full_queue_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "REQUESTS_MAX", 2)

    async def story(queue: EventQueue, _failures: list[Exception]) -> None:
        async def event() -> None:
            return

        for _ in range(2):
            queue.post(event)
        with pytest.raises(BrokerError) as refused:
            await queue.ask(event)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT

    with_queue(story)


def test_a_queue_that_stops_keeps_nobody_waiting() -> None:
    async def story(queue: EventQueue, _failures: list[Exception]) -> None:
        async def for_ever() -> None:
            await asyncio.Event().wait()

        asking = [asyncio.ensure_future(queue.ask(for_ever)) for _ in range(2)]
        waiting = asyncio.ensure_future(queue.idle())
        await asyncio.sleep(0)
        await queue.stop()
        await asyncio.wait([*asking, waiting])
        assert all(each.cancelled() for each in asking)
        assert waiting.result() is None

    with_queue(story)
