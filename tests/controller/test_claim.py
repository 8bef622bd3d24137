"""Becoming the controller: one at a time, each with a higher epoch than the one before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.clock import SystemClock
from tidelog.controller.claim import claim, release, watch_holder
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import EmbeddedHome
from tidelog.znodes.errors import MultiError
from tidelog.znodes.store import Create

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.znodes.store import WatchEvent


def on_a_store(story: Callable[[EmbeddedHome], Awaitable[None]]) -> None:
    async def main() -> None:
        home = await EmbeddedHome.open(None, SystemClock())
        await story(home)
        await home.close()

    asyncio.run(main())


def test_the_first_one_has_it_and_keeps_it() -> None:
    async def story(home: EmbeddedHome) -> None:
        first, second = await home.begin_session(), await home.begin_session()
        won = await claim(first, 1, 5)
        assert won is not None
        assert won.epoch == 1
        assert await claim(second, 2, 5) is None
        assert await claim(first, 1, 5) == won, "asked again, because the answer was lost"
        data, stat = await second.get(paths.CONTROLLER)
        assert nodes.ControllerClaim.decode(paths.CONTROLLER, data) == nodes.ControllerClaim(nodes.BrokerId(1), 5)  # type: ignore[attr-defined]
        assert stat.ephemeral_owner == first.session_id

    on_a_store(story)


def test_many_at_once_make_one() -> None:
    async def story(home: EmbeddedHome) -> None:
        sessions = [await home.begin_session() for _ in range(5)]
        claims = await asyncio.gather(*(claim(session, at, 0) for at, session in enumerate(sessions)))
        assert len([each for each in claims if each is not None]) == 1

    on_a_store(story)


def test_the_next_one_fences_the_one_before() -> None:
    async def story(home: EmbeddedHome) -> None:
        first, second = await home.begin_session(), await home.begin_session()
        old = await claim(first, 1, 0)
        assert old is not None
        await first.delete(paths.CONTROLLER)
        new = await claim(second, 2, 0)
        assert new is not None
        assert new.epoch == old.epoch + 1
        with pytest.raises(MultiError):
            await first.multi([old.fence, Create("/written")])
        await second.multi([new.fence, Create("/written")])

    on_a_store(story)


def test_the_holder_is_known_and_its_end_is_told() -> None:
    async def story(home: EmbeddedHome) -> None:
        first, second = await home.begin_session(), await home.begin_session()
        told: list[WatchEvent] = []
        assert await watch_holder(second, told.append) is None
        won = await claim(first, 1, 0)
        assert won is not None
        assert len(told) == 1
        assert await watch_holder(second, told.append) == 1
        await release(first, won)
        await second.exists("/")
        assert len(told) == 2
        assert await claim(second, 2, 0) is not None
        await release(first, won)  # it is not its own any more
        assert await watch_holder(first, told.append) == 2

    on_a_store(story)
