"""A broker's registration: who holds it, and what becomes of it when sessions end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.broker.membership import UNREGISTERED, BrokerIdTaken, Membership
from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.znodes import nodes, paths
from tidelog.znodes.embedded import EmbeddedHome

if TYPE_CHECKING:
    from tidelog.config.listeners import ListenerSet

CLOCK = SystemClock()


def listeners() -> ListenerSet:
    return BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "/nowhere"}).endpoints


async def home() -> EmbeddedHome:
    opened = await EmbeddedHome.open(None, CLOCK)
    session = await opened.begin_session()
    await session.create(paths.BROKER_IDS, make_parents=True)
    return opened


def test_a_broker_is_found_where_it_registered() -> None:
    async def scenario() -> None:
        session = await (await home()).begin_session()
        member = Membership(session, 3, CLOCK, patience_s=0)
        await member.join(listeners(), "rack-1")
        data, stat = await session.get(paths.broker(3))
        assert member.epoch == stat.czxid
        assert nodes.BrokerRegistration.decode(paths.broker(3), data).rack == "rack-1"

    asyncio.run(scenario())


def test_an_id_that_is_taken_is_refused() -> None:
    async def scenario() -> None:
        opened = await home()
        await Membership(await opened.begin_session(), 3, CLOCK, patience_s=0).join(listeners(), None)
        second = Membership(await opened.begin_session(), 3, CLOCK, patience_s=0)
        with pytest.raises(BrokerIdTaken, match=r"another id"):
            await second.join(listeners(), None)
        assert second.epoch == UNREGISTERED

    asyncio.run(scenario())


def test_the_registration_of_an_earlier_life_is_waited_for() -> None:
    async def scenario() -> None:
        opened = await home()
        earlier = await opened.begin_session()
        first = Membership(earlier, 3, CLOCK, patience_s=0)
        await first.join(listeners(), None)
        second = Membership(await opened.begin_session(), 3, CLOCK, patience_s=60)
        joining = asyncio.create_task(second.join(listeners(), None))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not joining.done()
        was = first.epoch
        await earlier.expire()
        await joining
        assert second.epoch > was

    asyncio.run(scenario())
