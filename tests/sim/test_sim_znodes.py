"""The simulated ZooKeeper keeps the promises of `znodes/store.py`, and breaks sessions as a real one does."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.testing.sim.ensemble import ADDRESS
from tidelog.testing.sim.sim_znodes import SimSession
from tidelog.testing.sim.world import World
from tidelog.znodes.errors import BadVersion, ConnectionLost, MultiError, NodeExists, NoNode
from tidelog.znodes.store import Check, Create, SessionState, WatchEvent

TIMEOUT_S = 6.0


class Client:
    """A machine with a session, and what its session told it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.loop = world.new_loop(name)
        self.states: list[SessionState] = []
        self.events: list[WatchEvent] = []
        self.znodes = world.run(
            SimSession.open(world.ensemble, name, self.loop, TIMEOUT_S), self.loop, within_s=TIMEOUT_S
        )
        self.znodes.add_listener(self.states.append)

    def wait(self, seconds: float) -> None:
        self.world.timeline.run_until(self.world.timeline.now + seconds)


def test_nodes_are_created_read_changed_and_deleted() -> None:
    with World(1) as world:
        client = Client(world, "a")

        async def play() -> None:
            znodes = client.znodes
            assert await znodes.create("/x/y", b"1", make_parents=True) == "/x/y"
            with pytest.raises(NodeExists):
                await znodes.create("/x/y")
            data, stat = await znodes.get("/x/y")
            assert (data, stat.version) == (b"1", 0)
            assert (await znodes.set("/x/y", b"2", 0)).version == 1
            with pytest.raises(BadVersion):
                await znodes.set("/x/y", b"3", 0)
            assert await znodes.children("/x") == ["y"]
            assert [each and each[0] for each in await znodes.get_many(["/x/y", "/z"])] == [b"2", None]
            with pytest.raises(MultiError):
                await znodes.multi([Create("/z"), Check("/x/y", 0)])
            assert await znodes.exists("/z") is None
            await znodes.delete("/x/y")
            with pytest.raises(NoNode):
                await znodes.get("/x/y")

        world.run(play(), client.loop, within_s=60)


def test_a_watch_is_told_once_and_before_later_answers_of_its_session() -> None:
    with World(2) as world:
        client, other = Client(world, "a"), Client(world, "b")

        async def watch() -> None:
            await client.znodes.create("/x")
            await client.znodes.children("/x", watch=client.events.append)

        async def change() -> None:
            await other.znodes.create("/x/1")
            await other.znodes.create("/x/2")

        world.run(watch(), client.loop, within_s=10)
        world.run(change(), other.loop, within_s=10)
        assert world.run(client.znodes.children("/x"), client.loop, within_s=10) == ["1", "2"]
        assert [event.path for event in client.events] == ["/x"]


def test_a_short_silence_suspends_and_the_session_lives_on() -> None:
    with World(3) as world:
        client = Client(world, "a")
        world.run(client.znodes.create("/mine", ephemeral=True), client.loop, within_s=10)
        before = client.znodes.session_id
        world.network.cut(ADDRESS, "a")
        client.wait(TIMEOUT_S)
        with pytest.raises(ConnectionLost):
            world.run(client.znodes.get("/mine"), client.loop, within_s=10)
        world.network.heal(ADDRESS, "a")
        client.wait(TIMEOUT_S)
        assert client.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert client.znodes.session_id == before
        assert world.run(client.znodes.exists("/mine"), client.loop, within_s=10)


def test_a_long_silence_loses_the_session_and_a_new_one_begins() -> None:
    with World(4) as world:
        client, other = Client(world, "a"), Client(world, "b")

        async def prepare() -> None:
            await client.znodes.create("/mine", ephemeral=True)

        world.run(prepare(), client.loop, within_s=10)
        world.run(other.znodes.exists("/mine", watch=other.events.append), other.loop, within_s=10)
        before = client.znodes.session_id
        world.network.cut("a", ADDRESS)
        client.wait(3 * TIMEOUT_S)
        assert [event.path for event in other.events] == ["/mine"]
        world.network.heal("a", ADDRESS)
        client.wait(TIMEOUT_S)
        assert client.states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        assert client.znodes.session_id not in {0, before}


def test_a_frozen_client_finds_its_session_gone() -> None:
    with World(5) as world:
        client = Client(world, "a")
        client.loop.freeze()
        client.wait(3 * TIMEOUT_S)
        assert client.states == []
        client.loop.thaw()
        client.wait(TIMEOUT_S)
        assert client.states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]


def test_watches_are_void_after_a_suspension() -> None:
    with World(6) as world:
        client, other = Client(world, "a"), Client(world, "b")
        world.run(client.znodes.exists("/x", watch=client.events.append), client.loop, within_s=10)
        world.ensemble.disconnect("a")
        client.wait(TIMEOUT_S)
        world.run(other.znodes.create("/x"), other.loop, within_s=10)
        client.wait(TIMEOUT_S)
        assert client.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert not client.events


def test_an_answer_that_is_lost_leaves_it_open_whether_the_write_happened() -> None:
    outcomes = set()
    for seed in range(40):
        with World(seed) as world:
            client = Client(world, "a")

            async def write(client: Client = client) -> bool:
                with pytest.raises(ConnectionLost):
                    await client.znodes.create("/x")
                await asyncio.sleep(TIMEOUT_S)
                return await client.znodes.exists("/x") is not None

            world.ensemble._loop.call_later(0.002, world.ensemble.disconnect, "a")
            try:
                outcomes.add(world.run(write(), client.loop, within_s=30))
            except pytest.fail.Exception:
                continue  # the answer was faster
    assert outcomes == {True, False}


def test_a_store_that_is_down_ends_no_sessions() -> None:
    with World(7) as world:
        client = Client(world, "a")
        world.ensemble.go_down()
        client.wait(5 * TIMEOUT_S)
        world.ensemble.come_up()
        client.wait(TIMEOUT_S)
        assert client.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
