"""What becomes of a session, its requests, watches and ephemeral nodes when servers stall, restart and die."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from zookeeper_cases import Told, connect, end_session_elsewhere

from tidelog.testing.eventually import eventually
from tidelog.znodes.errors import ConnectionLost, NodeExists, SessionExpired
from tidelog.znodes.launcher import ZooKeeperServers
from tidelog.znodes.store import Create, EventType, SessionState, WatchEvent, ZnodeStore

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


@pytest.fixture(scope="module")
def shaky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    """One server, which tests may mistreat as long as it runs when they are done."""
    with ZooKeeperServers(tmp_path_factory.mktemp("shaky"), tick_ms=100) as servers:
        yield servers


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    """The same, with three servers."""
    with ZooKeeperServers(tmp_path_factory.mktemp("three"), 3, tick_ms=100) as servers:
        yield servers


@pytest.fixture
def root() -> str:
    return f"/{uuid.uuid4().hex}"


async def reach(store: ZnodeStore, state: SessionState, told: Told) -> None:
    while store.state is not state:
        await told.next()


async def keep_trying(store: ZnodeStore, path: str) -> None:
    """Creates a node as code does that must get it done: it may have happened although the answer was lost."""
    told = Told()
    store.add_listener(told)
    while True:
        try:
            await store.create(path)
        except ConnectionLost:
            await asyncio.sleep(0)
            await reach(store, CONNECTED, told)
        except NodeExists:
            break
        else:
            break
    store.remove_listener(told)


def test_a_restarted_server_suspends_the_session_and_gives_it_back(shaky: ZooKeeperServers, root: str) -> None:
    async def scenario() -> None:
        store = await connect(shaky.connect_string + root)
        first, told, watch = store.session_id, Told(), Told()
        store.add_listener(told)
        await store.create("/mine", ephemeral=True)
        await store.create("/counter")
        await store.exists("/counter", watch=watch)
        await store.children("/", watch=watch)
        await asyncio.to_thread(shaky.kill, 1)
        assert await told.next() is SUSPENDED
        for refused in (store.get("/"), store.create("/no"), store.get_many(["/"]), store.multi([Create("/no")])):
            with pytest.raises(ConnectionLost, match=shaky.connect_string):
                await refused
        await asyncio.to_thread(shaky.restart, 1)
        assert await told.next() is CONNECTED
        assert store.session_id == first
        stat = await store.exists("/mine")
        assert stat is not None
        assert stat.ephemeral_owner == first
        # The watches are void; what is read now, with new ones, is all there is.
        assert await store.children("/") == ["counter", "mine"]
        await store.set("/counter", b"1")
        assert watch.idle
        await store.exists("/counter", watch=watch)
        await store.set("/counter", b"2")
        assert await watch.next() == WatchEvent(EventType.DATA_CHANGED, "/counter")
        assert told.idle
        await store.close()

    asyncio.run(scenario())


def test_requests_under_way_when_the_server_stalls_fail_and_later_ones_are_served(
    shaky: ZooKeeperServers, root: str
) -> None:
    async def scenario() -> None:
        store = await connect(shaky.connect_string + root, session_timeout_ms=1_000, requests_in_flight_max=3)
        told = Told()
        store.add_listener(told)
        os.kill(shaky.pids[1], signal.SIGSTOP)
        try:
            outcomes = await asyncio.gather(
                *(store.create(f"/n{number}") for number in range(20)), return_exceptions=True
            )
            assert {type(outcome) for outcome in outcomes} == {ConnectionLost}
            await reach(store, SUSPENDED, told)
        finally:
            os.kill(shaky.pids[1], signal.SIGCONT)
        await reach(store, CONNECTED, told)
        await keep_trying(store, "/after")
        # Those that waited for their turn were never sent; the others may have happened or not.
        assert {"n0", "n1", "n2", "after"} >= set(await store.children("/"))
        await store.close()

    asyncio.run(scenario())


def test_a_session_that_expires_while_its_server_stalls_is_lost_and_a_new_one_begins(
    three: ZooKeeperServers, root: str
) -> None:
    async def scenario() -> None:
        # One that leads could, when it goes on, still take itself for the leader for a moment.
        stalled = next(number for number in three.numbers if three.role(number) == "follower")
        others = ",".join(three.address(number) for number in three.numbers if number != stalled)
        store = await connect(three.address(stalled) + root, session_timeout_ms=2_000)
        other = await connect(others + root)
        told, gone = Told(), Told()
        store.add_listener(told)
        first = store.session_id
        await store.create("/mine", ephemeral=True)
        while await other.exists("/mine", watch=gone) is None:
            await gone.next()
        os.kill(three.pids[stalled], signal.SIGSTOP)
        try:
            assert await told.next() is SUSPENDED
            assert await gone.next() == WatchEvent(EventType.DELETED, "/mine")
            assert (store.state, store.session_id) == (SUSPENDED, first)
        finally:
            os.kill(three.pids[stalled], signal.SIGCONT)
        states = [await told.next()]
        while states[-1] is not CONNECTED:
            states.append(await told.next())
        assert states == [LOST, CONNECTED]
        assert store.session_id not in (0, first)
        await keep_trying(store, "/mine")
        await store.close()
        await other.close()

    asyncio.run(scenario())
    eventually(lambda: all(map(three.serves, three.numbers)), "all servers to serve again", within_s=60)


def test_three_servers_serve_as_long_as_two_of_them_live(three: ZooKeeperServers, root: str) -> None:
    async def scenario() -> None:
        store = await connect(three.connect_string + root)
        told = Told()
        store.add_listener(told)
        first = store.session_id
        await store.create("/mine", ephemeral=True)
        for number in three.numbers:
            await asyncio.to_thread(three.kill, number)
            await keep_trying(store, f"/without-{number}")
            assert (store.session_id, store.state) == (first, CONNECTED)
            await asyncio.to_thread(three.restart, number)
        await asyncio.to_thread(three.kill, 1)
        await asyncio.to_thread(three.kill, 2)
        while store.state is CONNECTED:
            try:
                await store.create("/nobody-agrees")
            except ConnectionLost:
                await asyncio.sleep(0)
        for number in (1, 2):
            # One of them alone completes the majority.
            await asyncio.to_thread(three._launch, number)
        await reach(store, CONNECTED, told)
        await keep_trying(store, "/again")
        assert store.session_id == first
        found = set(await store.children("/"))
        assert found - {"nobody-agrees"} == {"mine", "without-1", "without-2", "without-3", "again"}
        await store.close()

    asyncio.run(scenario())
    eventually(lambda: all(map(three.serves, three.numbers)), "all servers to serve again", within_s=60)


def test_what_is_asked_in_one_session_does_not_happen_in_the_next(own_root: str) -> None:
    async def scenario() -> None:
        store = await connect(own_root)
        first, told = store.session_id, Told()
        store.add_listener(told)
        client: Any = store._link._client  # type: ignore[attr-defined]

        def expire_and_wait_for_the_next_session() -> None:
            asyncio.run(end_session_elsewhere(store))
            eventually(lambda: client.connected and client._session_id != first, "the next session")

        # The loop stands still meanwhile, like a process that is stopped, so that it knows of nothing.
        worker = threading.Thread(target=expire_and_wait_for_the_next_session)
        worker.start()
        worker.join()
        assert (store.state, store.session_id) == (CONNECTED, first)
        with pytest.raises((ConnectionLost, SessionExpired)):
            await store.create("/mine", ephemeral=True)
        assert [await told.next() for _ in range(3)] == [SUSPENDED, LOST, CONNECTED]
        assert await store.children("/") == []
        await store.close()

    asyncio.run(scenario())


def test_a_session_begins_anew_when_the_connections_thread_breaks_down(own_root: str) -> None:
    async def scenario() -> None:
        store = await connect(own_root)
        first, told = store.session_id, Told()
        store.add_listener(told)
        # kazoo cannot send this, and gives up.
        store._link.send(object(), print)  # type: ignore[attr-defined]
        assert await told.next() is LOST
        with pytest.raises(SessionExpired, match="wait for the next one"):
            await store.get("/")
        assert await told.next() is CONNECTED
        assert store.session_id not in (0, first)
        await store.create("/works")
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["stalled", "dead"])
def test_closing_does_not_wait_for_servers_that_are_away(tmp_path_factory: pytest.TempPathFactory, how: str) -> None:
    async def scenario(servers: ZooKeeperServers) -> None:
        store = await connect(servers.connect_string, session_timeout_ms=1_000)
        told = Told()
        store.add_listener(told)
        if how == "stalled":
            os.kill(servers.pids[1], signal.SIGSTOP)
        else:
            await asyncio.to_thread(servers.kill, 1)
            assert await told.next() is SUSPENDED
        await store.close()
        assert await told.next() is LOST
        with pytest.raises(SessionExpired, match="closed"):
            await store.get("/")

    with ZooKeeperServers(tmp_path_factory.mktemp("away"), tick_ms=100) as servers:
        asyncio.run(scenario(servers))
    assert not [thread for thread in threading.enumerate() if thread.name == "zookeeper"]


def test_a_loop_that_ends_without_closing_leaves_no_noise(own_root: str) -> None:
    async def scenario() -> Any:
        store = await connect(own_root)
        return store._link  # type: ignore[attr-defined]

    link = asyncio.run(scenario())
    link._client.stop()
    link._client.close()
