"""The embedded home: group commit, visibility only after durability, a failing disk, and a model to compare with."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.clock import SystemClock
from tidelog.znodes.embedded import EmbeddedHome, EmbeddedSession
from tidelog.znodes.errors import (
    BadVersion,
    MultiError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreUnavailable,
    ZnodeError,
)
from tidelog.znodes.path_rules import child_of, parent_of
from tidelog.znodes.store import Check, Create, Delete, Operation, SessionState, SetData, WatchEvent
from tidelog.znodes.tree import Changes, Tree


class HeldJournal:
    """Commits only when told to, or fails."""

    def __init__(self) -> None:
        self.commits: list[tuple[Changes, int]] = []
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()
        self.failure: Exception | None = None
        self.closed = False

    async def commit(self, changes: Changes, zxid: int) -> None:
        self.entered.set()
        await self.release.wait()
        if self.failure is not None:
            raise self.failure
        self.commits.append((dict(changes), zxid))

    async def close(self) -> None:
        self.closed = True


async def held_home() -> tuple[HeldJournal, EmbeddedSession]:
    journal = HeldJournal()
    session = await EmbeddedHome(Tree(), 0, journal, SystemClock()).begin_session(close_home=True)
    journal.release.clear()
    journal.entered.clear()
    return journal, session


def test_nobody_sees_a_write_before_it_is_durable() -> None:
    async def scenario() -> None:
        journal, store = await held_home()
        told: list[WatchEvent] = []
        await store.exists("/a", watch=told.append)
        write = asyncio.ensure_future(store.create("/a"))
        await journal.entered.wait()
        assert await store.exists("/a") is None
        assert await store.children("/") == []
        assert told == []
        assert not write.done()
        journal.release.set()
        assert await write == "/a"
        assert await store.exists("/a") is not None
        assert len(told) == 1

    asyncio.run(scenario())


def test_writes_that_arrive_during_a_commit_share_the_next_one() -> None:
    async def scenario() -> None:
        journal, store = await held_home()
        first = asyncio.ensure_future(store.create("/first"))
        await journal.entered.wait()
        others = [asyncio.ensure_future(store.create(f"/n{number}")) for number in range(100)]
        refused = asyncio.ensure_future(store.create("/n5"))
        await asyncio.sleep(0)
        journal.release.set()
        await asyncio.gather(first, *others)
        with pytest.raises(NodeExists):
            await refused
        assert [len(changes) for changes, _ in journal.commits] == [0, 2, 101]
        assert [zxid for _, zxid in journal.commits] == [1, 2, 102]

    asyncio.run(scenario())


def test_refused_writes_cost_no_commit() -> None:
    async def scenario() -> None:
        journal, store = await held_home()
        with pytest.raises(NoNode):
            await store.delete("/no")
        await store.multi([Check("/")])
        assert len(journal.commits) == 1

    asyncio.run(scenario())


def test_a_failed_disk_ends_the_session_and_everything_after() -> None:
    async def scenario() -> None:
        journal, store = await held_home()
        states: list[SessionState] = []
        store.add_listener(states.append)
        journal.failure = StoreUnavailable("the disk is gone")
        writes = [asyncio.ensure_future(store.create("/a"))]
        await journal.entered.wait()
        writes.append(asyncio.ensure_future(store.create("/b")))
        await asyncio.sleep(0)
        journal.release.set()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [str(result) for result in results] == ["the disk is gone"] * 2
        assert states == [SessionState.LOST]
        with pytest.raises(SessionExpired):
            await store.exists("/")
        with pytest.raises(StoreUnavailable, match="the disk is gone"):
            await store._home.begin_session()
        await store.close()
        assert journal.closed

    asyncio.run(scenario())


def test_a_bug_below_leaves_nobody_waiting() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        journal, store = await held_home()
        journal.failure = RuntimeError("a bug")
        write = asyncio.ensure_future(store.create("/a"))
        await journal.entered.wait()
        waiting = asyncio.ensure_future(store.create("/b"))
        await asyncio.sleep(0)
        journal.release.set()
        for stopped in await asyncio.gather(write, waiting, return_exceptions=True):
            assert isinstance(stopped, StoreUnavailable)
            assert "a bug" in str(stopped)
        await store.close()

    asyncio.run(scenario())


def test_closing_waits_for_writes_under_way() -> None:
    async def scenario() -> None:
        journal, store = await held_home()
        write = asyncio.ensure_future(store.create("/a", ephemeral=True))
        await journal.entered.wait()
        waiting = asyncio.ensure_future(store.create("/b", ephemeral=True))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        assert not closing.done()
        journal.release.set()
        await asyncio.gather(write, waiting, closing)
        assert journal.closed
        assert store._home.tree.children("/") == []

    asyncio.run(scenario())


def test_a_watch_that_fails_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        problems: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
        store = await (await EmbeddedHome.open(None, SystemClock())).begin_session()
        told: list[WatchEvent] = []

        def broken(_event: WatchEvent) -> None:
            raise RuntimeError("broken watch")

        await store.exists("/a", watch=broken)
        await store.exists("/a", watch=told.append)
        await store.create("/a")
        assert len(told) == len(problems) == 1

    asyncio.run(scenario())


class ModelNode:
    def __init__(self, data: bytes, owner: int) -> None:
        self.data = data
        self.owner = owner
        self.version = 0
        self.created = 0


PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/a/b/c", "/b/a", "/b/a/a"])
DATA = st.binary(max_size=8)
VERSIONS = st.sampled_from([-1, -1, -1, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(SetData, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


class StoreAgainstModel(RuleBasedStateMachine):
    """Operations, sessions that end and restarts, on the real store and on the simplest thing that could be right."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="znodes-"))
        self.runner = asyncio.Runner()
        self.model = {"/": ModelNode(b"", 0)}
        self.sessions: list[EmbeddedSession] = []
        self.last_zxid = 0

    @initialize()
    def start(self) -> None:
        self.home = self.runner.run(EmbeddedHome.open(self.directory / "znodes", SystemClock()))
        self.sessions = [self.runner.run(self.home.begin_session()) for _ in range(2)]

    def teardown(self) -> None:
        self.runner.run(self.home.close())
        self.runner.close()
        shutil.rmtree(self.directory)

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4), who=st.integers(0, 1))
    def multi(self, operations: list[Operation], who: int) -> None:
        session = self.sessions[who]
        before = {path: self.copied(node) for path, node in self.model.items()}
        expected: list[object] = []
        failure: ZnodeError | None = None
        for operation in operations:
            expected.append(self.attempt(operation, session.session_id))
            if isinstance(expected[-1], ZnodeError):
                failure = expected[-1]
                break
        if failure is not None:
            self.model = before
            with pytest.raises(MultiError) as refusal:
                self.runner.run(session.multi(operations))
            assert (refusal.value.index, type(refusal.value.cause)) == (len(expected) - 1, type(failure))
        else:
            results = self.runner.run(session.multi(operations))
            assert [None if isinstance(each, tuple) else each for each in results] == expected

    @rule(writes=st.lists(st.tuples(OPERATIONS, st.integers(0, 1)), min_size=2, max_size=6))
    def concurrent(self, writes: list[tuple[Operation, int]]) -> None:
        async def together() -> list[object]:
            return await asyncio.gather(
                *(self.sessions[who].multi([operation]) for operation, who in writes), return_exceptions=True
            )

        for (operation, who), result in zip(writes, self.runner.run(together()), strict=True):
            expected = self.attempt(operation, self.sessions[who].session_id)
            if isinstance(expected, ZnodeError):
                assert isinstance(result, MultiError)
                assert type(result.cause) is type(expected)
            else:
                assert isinstance(result, list)
                assert expected == (None if isinstance(result[0], tuple) else result[0])

    @rule(who=st.integers(0, 1))
    def end_session(self, who: int) -> None:
        ended = self.sessions[who]
        self.runner.run(ended.expire())
        self.drop_owned({ended.session_id})
        self.sessions[who] = self.runner.run(self.home.begin_session())

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.runner.run(self.home.close())
        else:
            # As after a crash: the file is let go without a word to the store above it.
            self.runner.run(self.home._journal.close())
        self.drop_owned({session.session_id for session in self.sessions})
        self.start()

    @invariant()
    def same_tree(self) -> None:
        if not self.sessions:
            return
        for path, node in self.model.items():
            found = self.home.tree.get(path)
            assert found is not None
            assert (found.data, found.version, found.owner) == (node.data, node.version, node.owner)
            assert found.children_created == node.created
            names = sorted(each.rpartition("/")[2] for each in self.model if each != "/" and parent_of(each) == path)
            assert self.home.tree.children(path) == names
            assert found.num_children == len(names)
        assert self.home._zxid >= self.last_zxid
        self.last_zxid = self.home._zxid

    def drop_owned(self, session_ids: set[int]) -> None:
        self.model = {path: node for path, node in self.model.items() if node.owner not in session_ids}

    @staticmethod
    def copied(node: ModelNode) -> ModelNode:
        copy = ModelNode(node.data, node.owner)
        copy.version, copy.created = node.version, node.created
        return copy

    def attempt(self, operation: Operation, session_id: int) -> object:
        """The result, or the error that it fails with."""
        try:
            return self.apply(operation, session_id)
        except ZnodeError as error:
            return error

    def apply(self, operation: Operation, session_id: int) -> object:
        if isinstance(operation, Create):
            return self.apply_create(operation, session_id)
        node = self.model.get(operation.path)
        if node is None:
            raise NoNode(operation.path)
        if operation.version not in (-1, node.version):
            raise BadVersion(operation.path)
        if isinstance(operation, SetData):
            node.data = operation.data
            node.version += 1
        elif isinstance(operation, Delete):
            if any(path.startswith(child_of(operation.path, "")) for path in self.model):
                raise NotEmpty(operation.path)
            del self.model[operation.path]
        return None

    def apply_create(self, operation: Create, session_id: int) -> str:
        parent = self.model.get(parent_of(operation.path))
        if parent is None:
            raise NoNode(operation.path)
        if parent.owner:
            raise NoChildrenForEphemerals(operation.path)
        path = f"{operation.path}{parent.created:010d}" if operation.sequential else operation.path
        if path in self.model:
            raise NodeExists(path)
        self.model[path] = ModelNode(operation.data, session_id if operation.ephemeral else 0)
        parent.created += 1
        return path


StoreAgainstModel.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
test_store_against_model = StoreAgainstModel.TestCase
