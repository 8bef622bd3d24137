"""What every home of the coordination store promises. A new home only adds a parameter to `home`.

Sessions may sit on different servers, so what one wrote is only seen by another after the other was told or looked
again: nothing here reads through one session right after writing through another, except to wait for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import pytest
import uvloop
from zookeeper_cases import Told, connect, end_session_elsewhere

from tidelog.clock import SystemClock
from tidelog.znodes.embedded import EmbeddedHome, EmbeddedSession
from tidelog.znodes.errors import (
    BadArguments,
    BadVersion,
    MultiError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    TooLarge,
    ZnodeError,
)
from tidelog.znodes.store import (
    REQUEST_MAX_BYTES,
    Check,
    Create,
    Delete,
    EventType,
    Operation,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    ZnodeStore,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Scenario = Callable[["Home"], Awaitable[None]]
    Runner = Callable[[Scenario], None]


class Home(Protocol):
    """One store, empty at first, that several sessions can share."""

    @property
    def revives(self) -> bool:
        """Whether a session that expired is followed by another one."""

    async def connect(self) -> ZnodeStore: ...

    async def expire(self, session: ZnodeStore) -> None:
        """Ends the session as the store does when it has not heard from the client."""

    async def close(self) -> None: ...


class EmbeddedUnderTest:
    revives = False

    def __init__(self, home: EmbeddedHome) -> None:
        self.home = home

    async def connect(self) -> ZnodeStore:
        return await self.home.begin_session()

    async def expire(self, session: ZnodeStore) -> None:
        assert isinstance(session, EmbeddedSession)
        await session.expire()

    async def close(self) -> None:
        await self.home.close()


class ZooKeeperUnderTest:
    revives = True

    def __init__(self, connect_string: str) -> None:
        self.connect_string = connect_string
        self.sessions: list[ZnodeStore] = []

    async def connect(self) -> ZnodeStore:
        session = await connect(self.connect_string)
        self.sessions.append(session)
        return session

    async def expire(self, session: ZnodeStore) -> None:
        await end_session_elsewhere(session)

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self.sessions))


@pytest.fixture(params=["memory", "sqlite", "sqlite-uvloop", "zookeeper", "zookeeper-uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runner]:
    """Runs a scenario against one home of the store."""
    loop_factory = uvloop.new_event_loop if request.param.endswith("uvloop") else None
    zookeeper = request.getfixturevalue("own_root") if request.param.startswith("zookeeper") else None
    file = None if request.param == "memory" else tmp_path / "znodes"

    async def open_home() -> Home:
        if zookeeper is not None:
            return ZooKeeperUnderTest(zookeeper)
        return EmbeddedUnderTest(await EmbeddedHome.open(file, SystemClock()))

    async def with_home(scenario: Scenario) -> None:
        home = await open_home()
        try:
            await scenario(home)
        finally:
            await home.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        yield lambda scenario: runner.run(with_home(scenario))


def test_create_get_set_delete(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        assert await store.create("/a", b"one") == "/a"
        data, created = await store.get("/a")
        assert data == b"one"
        assert (created.version, created.cversion, created.num_children) == (0, 0, 0)
        assert (created.data_length, created.ephemeral_owner) == (3, 0)
        assert created.czxid == created.mzxid > 0
        changed = await store.set("/a", b"three", 0)
        assert (changed.version, changed.data_length, changed.czxid) == (1, 5, created.czxid)
        assert changed.mzxid > created.mzxid
        assert changed.mtime_ms >= changed.ctime_ms == created.ctime_ms
        assert await store.get("/a") == (b"three", changed)
        assert await store.exists("/a") == changed
        await store.delete("/a", 1)
        assert await store.exists("/a") is None

    run(scenario)


def test_the_root_is_there_and_stays(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        assert await store.exists("/") is not None
        with pytest.raises(NodeExists):
            await store.create("/")
        with pytest.raises(BadArguments):
            await store.delete("/")
        await store.create("/top")
        assert "top" in await store.children("/")

    run(scenario)


def test_what_is_not_there(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        for refused in (
            store.get("/no"),
            store.set("/no", b""),
            store.delete("/no"),
            store.children("/no"),
            store.create("/no/child"),
        ):
            with pytest.raises(NoNode):
                await refused
        assert await store.exists("/no") is None

    run(scenario)


def test_versions_guard_writes(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/a", b"one")
        await store.set("/a", b"two")
        with pytest.raises(BadVersion):
            await store.set("/a", b"three", 0)
        with pytest.raises(BadVersion):
            await store.delete("/a", 0)
        assert (await store.get("/a"))[0] == b"two"
        await store.set("/a", b"three", 1)
        await store.delete("/a", 2)

    run(scenario)


def test_refusals_of_the_tree(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/a")
        with pytest.raises(NodeExists):
            await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.create("/e", ephemeral=True)
        with pytest.raises(NoChildrenForEphemerals):
            await store.create("/e/child")
        with pytest.raises(NoChildrenForEphemerals):
            await store.create("/e/child/grandchild", make_parents=True)

    run(scenario)


def test_children_and_their_counts(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/p")
        for name in ("c", "a", "b"):
            await store.create(f"/p/{name}")
        assert await store.children("/p") == ["a", "b", "c"]
        await store.delete("/p/b")
        assert await store.children("/p") == ["a", "c"]
        assert await store.children("/p/a") == []
        before = (await store.get("/p"))[1]
        assert (before.num_children, before.cversion, before.version) == (2, 4, 0)
        await store.set("/p/a", b"x")
        after = (await store.get("/p"))[1]
        assert after == before
        await store.create("/p/d")
        assert (await store.get("/p"))[1].pzxid > before.pzxid

    run(scenario)


def test_parents_on_demand(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        assert await store.create("/a/b/c", b"leaf", make_parents=True) == "/a/b/c"
        assert await store.get_many(["/a/b/c"]) == [(b"leaf", await store.exists("/a/b/c"))]
        assert (await store.get("/a/b"))[0] == b""
        assert await store.create("/a/b/d", make_parents=True) == "/a/b/d"
        with pytest.raises(NodeExists):
            await store.create("/a/b/d", make_parents=True)

    run(scenario)


def test_parents_on_demand_of_many_at_once(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        first, second = await home.connect(), await home.connect()
        paths = [f"/x/y/z/{number}" for number in range(20)]
        created = await asyncio.gather(
            *(store.create(path, make_parents=True) for path, store in zip(paths, [first, second] * 10, strict=True))
        )
        assert created == paths

    run(scenario)


def test_sequence_numbers_grow_and_are_never_reused(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/q")
        first = await store.create("/q/item-", sequential=True)
        assert first == "/q/item-0000000000"
        await store.delete(first)
        assert await store.create("/q/item-", sequential=True) == "/q/item-0000000001"
        await store.create("/q/plain")
        assert await store.create("/q/other-", sequential=True) == "/q/other-0000000003"
        assert await store.create("/q/", b"", sequential=True, ephemeral=True) == "/q/0000000004"

    run(scenario)


def test_get_many(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.multi([Create(f"/n{number}", str(number).encode()) for number in range(200)])
        found = await store.get_many([f"/n{number}" for number in range(0, 400, 2)])
        assert [entry[0] if entry else None for entry in found] == [
            str(number).encode() if number < 200 else None for number in range(0, 400, 2)
        ]
        assert await store.get_many([]) == []

    run(scenario)


def test_multi_does_all_in_order(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/old", b"x")
        results = await store.multi(
            [
                Check("/old", 0),
                Create("/a", b"1"),
                Create("/a/s-", b"2", sequential=True),
                SetData("/a", b"3", 0),
                Delete("/old"),
            ]
        )
        assert results[:3] == [None, "/a", "/a/s-0000000000"]
        stat = results[3]
        assert isinstance(stat, Stat)
        assert (stat.version, stat.data_length) == (1, 1)
        assert results[4] is None
        assert (await store.get("/a"))[0] == b"3"
        assert await store.exists("/old") is None
        assert await store.multi([]) == []

    run(scenario)


def test_multi_is_one_transaction(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.multi([Create("/a"), Create("/b")])
        first, second = await store.exists("/a"), await store.exists("/b")
        assert first is not None
        assert second is not None
        assert first.czxid == second.czxid

    run(scenario)


@pytest.mark.parametrize(
    ("failing", "cause"),
    [
        (Create("/taken"), NodeExists),
        (Create("/no/child"), NoNode),
        (SetData("/taken", b"", 7), BadVersion),
        (Delete("/taken", 7), BadVersion),
        (Check("/taken", 7), BadVersion),
        (Check("/no"), NoNode),
        (Delete("/full"), NotEmpty),
        (Create("/lease/child"), NoChildrenForEphemerals),
    ],
)
def test_multi_does_nothing_if_one_fails(run: Runner, failing: Operation, cause: type[ZnodeError]) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.multi([Create("/taken", b"kept"), Create("/full"), Create("/full/child")])
        with pytest.raises(MultiError) as refusal:
            await store.multi(
                [Create("/new"), Create("/lease", ephemeral=True), SetData("/full/child", b"changed"), failing]
            )
        assert (refusal.value.index, type(refusal.value.cause)) == (3, cause)
        assert await store.children("/") == ["full", "taken"]
        assert await store.children("/full") == ["child"]
        assert (await store.get("/full/child"))[0] == b""

    run(scenario)


def test_multi_sees_what_it_did_itself(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.multi([Create("/full"), Create("/full/child")])
        await store.multi([Delete("/full/child"), Delete("/full"), Create("/full", b"again")])
        assert (await store.get("/full"))[0] == b"again"
        assert await store.children("/full") == []

    run(scenario)


def test_malformed_paths(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        for path in ("", "a", "/a/", "//a", "/a//b", "/a/.", "/../a", "/a\x00b", "/a\x1f", "/\ufff0", "/" + "x" * 2000):
            for refused in (store.create(path), store.get(path), store.exists(path), store.multi([Check(path)])):
                with pytest.raises(BadArguments):
                    await refused

    run(scenario)


def test_unusual_but_legal_paths_and_data(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        data = bytes(range(256))
        for path in ("/é", "/a b", "/%2F", "/...", "/\u4e16\u754c", "/'quote\""):
            await store.create(path, data)
            assert (await store.get(path))[0] == data

    run(scenario)


def test_size_limits(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        large = bytes(REQUEST_MAX_BYTES - 200)
        await store.create("/large", large)
        assert (await store.get("/large"))[0] == large
        for refused in (
            store.create("/larger", bytes(REQUEST_MAX_BYTES)),
            store.set("/large", bytes(REQUEST_MAX_BYTES)),
            store.multi([Create("/x", bytes(600_000)), Create("/y", bytes(600_000))]),
        ):
            with pytest.raises(TooLarge):
                await refused
        assert (await store.get("/large"))[0] == large

    run(scenario)


def test_delete_recursively(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.multi([Create("/t"), Create("/t/p"), *(Create(f"/t/p/{number}") for number in range(700))])
        await store.create("/tt")
        assert await store.delete_recursively("/t") is True
        assert await store.exists("/t") is None
        assert await store.exists("/tt") is not None
        assert await store.delete_recursively("/t") is False

    run(scenario)


def test_watch_of_a_nodes_data(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/a", b"1")
        told = Told()
        await store.get("/a", watch=told)
        await store.create("/a/child")
        assert told.idle
        await store.set("/a", b"2")
        assert await told.next() == WatchEvent(EventType.DATA_CHANGED, "/a")
        await store.set("/a", b"3")
        assert told.idle
        await store.delete("/a/child")
        await store.get("/a", watch=told)
        await store.delete("/a")
        assert await told.next() == WatchEvent(EventType.DELETED, "/a")

    run(scenario)


def test_watch_of_existence(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        told = Told()
        for change, expected in (
            (store.create("/a"), EventType.CREATED),
            (store.set("/a", b"x"), EventType.DATA_CHANGED),
            (store.delete("/a"), EventType.DELETED),
        ):
            await store.exists("/a", watch=told)
            await change
            assert await told.next() == WatchEvent(expected, "/a")
            assert told.idle

    run(scenario)


def test_watch_of_children(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/p")
        told = Told()
        assert await store.children("/p", watch=told) == []
        await store.set("/p", b"x")
        assert told.idle
        await store.create("/p/a")
        assert await told.next() == WatchEvent(EventType.CHILDREN_CHANGED, "/p")
        await store.children("/p", watch=told)
        await store.set("/p/a", b"x")
        await store.create("/p/a/deeper")
        assert told.idle
        await store.delete("/p/a/deeper")
        await store.delete("/p/a")
        assert await told.next() == WatchEvent(EventType.CHILDREN_CHANGED, "/p")
        await store.children("/p", watch=told)
        await store.delete("/p")
        assert await told.next() == WatchEvent(EventType.DELETED, "/p")

    run(scenario)


def test_watches_that_are_not_set(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        told = Told()
        with pytest.raises(NoNode):
            await store.get("/a", watch=told)
        with pytest.raises(NoNode):
            await store.children("/a", watch=told)
        await store.create("/a")
        await store.create("/a/b")
        assert told.idle

    run(scenario)


def test_a_watch_set_twice_is_told_once_and_each_watch_for_itself(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/a")
        told, also_told = Told(), Told()
        for watch in (told, told, also_told):
            await store.exists("/a", watch=watch)
        await store.set("/a", b"x")
        assert await told.next() == await also_told.next() == WatchEvent(EventType.DATA_CHANGED, "/a")
        assert told.idle
        assert also_told.idle

    run(scenario)


def test_a_watch_is_told_before_the_later_write_is_answered(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/a")
        told = Told()
        await store.exists("/a", watch=told)
        await store.set("/a", b"x")
        assert not told.idle

    run(scenario)


def test_a_failed_multi_tells_nobody(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        told = Told()
        await store.exists("/a", watch=told)
        with pytest.raises(MultiError):
            await store.multi([Create("/a"), Check("/no")])
        assert told.idle
        await store.multi([Create("/a"), SetData("/a", b"x")])
        assert await told.next() == WatchEvent(EventType.CREATED, "/a")
        assert told.idle

    run(scenario)


def test_sessions_see_each_other(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        writer, reader = await home.connect(), await home.connect()
        assert writer.session_id != reader.session_id
        assert 0 not in (writer.session_id, reader.session_id)
        told = Told()
        await reader.exists("/a", watch=told)
        await writer.create("/a", b"x", ephemeral=True)
        assert await told.next() == WatchEvent(EventType.CREATED, "/a")
        data, stat = await reader.get("/a", watch=told)
        assert (data, stat.ephemeral_owner) == (b"x", writer.session_id)
        await reader.set("/a", b"y")
        assert await told.next() == WatchEvent(EventType.DATA_CHANGED, "/a")

    run(scenario)


@pytest.mark.parametrize("how", ["close", "expire"])
def test_ephemeral_nodes_end_with_their_session(run: Runner, how: str) -> None:
    async def scenario(home: Home) -> None:
        owner, other = await home.connect(), await home.connect()
        await owner.create("/live")
        await owner.create("/live/mine", ephemeral=True)
        await owner.create("/live/stays")
        told, children_told = Told(), Told()
        while await other.exists("/live/stays", watch=told) is None:
            await told.next()
        gone = Told()
        assert await other.exists("/live/mine", watch=gone) is not None
        await other.children("/live", watch=children_told)
        await (owner.close() if how == "close" else home.expire(owner))
        assert await gone.next() == WatchEvent(EventType.DELETED, "/live/mine")
        assert await children_told.next() == WatchEvent(EventType.CHILDREN_CHANGED, "/live")
        assert await other.children("/live") == ["stays"]

    run(scenario)


def test_the_first_to_create_wins(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        stores = [await home.connect() for _ in range(5)]
        results = await asyncio.gather(
            *(store.create("/controller", ephemeral=True) for store in stores), return_exceptions=True
        )
        assert results.count("/controller") == 1
        assert sum(isinstance(result, NodeExists) for result in results) == 4

    run(scenario)


async def refusals_of(store: ZnodeStore) -> None:
    for refused in (
        store.create("/a"),
        store.get("/"),
        store.get_many(["/"]),
        store.exists("/"),
        store.children("/"),
        store.multi([Create("/a")]),
    ):
        with pytest.raises(SessionExpired):
            await refused


def test_a_closed_session_says_so_and_refuses_everything(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        states = [store.state]
        told, removed = Told(), Told()
        store.add_listener(told)
        store.add_listener(removed)
        store.remove_listener(removed)
        await store.close()
        assert await told.next() is SessionState.LOST
        states.append(store.state)
        assert states == [SessionState.CONNECTED, SessionState.LOST]
        assert removed.idle
        await refusals_of(store)
        await store.close()
        assert told.idle

    run(scenario)


def test_an_expired_session_says_so_and_ends_or_begins_anew(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/mine", ephemeral=True)
        first, told, watch = store.session_id, Told(), Told()
        await store.exists("/mine", watch=watch)
        seen: list[object] = []

        def remember(state: SessionState) -> None:
            # What a listener does at once, it does while nothing else has happened yet.
            seen.append((state, store.session_id == first))
            told(state)

        store.add_listener(remember)
        await home.expire(store)
        while await told.next() is not SessionState.LOST:
            pass
        assert (SessionState.LOST, True) in seen
        assert watch.idle
        if home.revives:
            assert await told.next() is SessionState.CONNECTED
            assert store.session_id not in (0, first)
            assert await store.exists("/mine") is None
            assert await store.create("/mine", ephemeral=True) == "/mine"
        else:
            await refusals_of(store)
        assert told.idle

    run(scenario)


def test_many_writers_at_once_keep_their_order(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        await store.create("/counter", b"0")
        stats = await asyncio.gather(*(store.set("/counter", str(number).encode()) for number in range(1, 301)))
        assert [stat.version for stat in stats] == list(range(1, 301))
        assert (await store.get("/counter"))[0] == b"300"

    run(scenario)


def test_compare_and_set_by_many_loses_no_step(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        stores = [await home.connect() for _ in range(4)]
        await stores[0].create("/counter", b"0")

        async def count_up(store: ZnodeStore) -> None:
            done = 0
            while done < 10:
                try:
                    data, stat = await store.get("/counter")
                    await store.set("/counter", str(int(data) + 1).encode(), stat.version)
                except (BadVersion, NoNode):
                    continue
                done += 1

        await asyncio.gather(*map(count_up, stores))
        assert (await stores[0].set("/counter", b"")).version == 41

    run(scenario)


def test_a_cancelled_writer_leaves_the_store_usable(run: Runner) -> None:
    async def scenario(home: Home) -> None:
        store = await home.connect()
        writers = [asyncio.ensure_future(store.create(f"/n{number}")) for number in range(10)]
        await asyncio.sleep(0)
        for writer in writers[::2]:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await store.create("/after")
        assert {f"n{number}" for number in range(1, 10, 2)} <= set(await store.children("/"))

    run(scenario)
