"""The coordination store of a broker that is alone: in this process, durable in one SQLite file.

Reads come from memory. Writes that arrive while one commit is under way go into the next one together, so that many
cost one fsync. `EmbeddedHome` is the store; an `EmbeddedSession` is what a client of it holds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tidelog.znodes.errors import (
    MultiError,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreFull,
    StoreUnavailable,
    ZnodeError,
)
from tidelog.znodes.journal import Journal, MemoryJournal, SqliteJournal
from tidelog.znodes.path_rules import ROOT, check_path, parent_of
from tidelog.znodes.store import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    OperationResult,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    Watch,
    WatchEvent,
    ZnodeStore,
    check_operations,
)
from tidelog.znodes.tree import Draft, Outcome, Tree
from tidelog.znodes.watches import WatchTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidelog.clock import Clock

_BATCH_OPERATIONS_MAX = 5000
"""Operations in one commit: bounds how long the first writer of a batch waits for the last one's work."""


class _Write:
    """A transaction that waits for its commit. `decide` runs it on a draft."""

    __slots__ = ("decide", "done", "size")

    def __init__(self, decide: Callable[[Draft], Outcome], size: int, done: asyncio.Future[Outcome]) -> None:
        self.decide = decide
        self.size = size
        self.done = done


class EmbeddedHome:
    def __init__(self, tree: Tree, zxid: int, journal: Journal, clock: Clock) -> None:
        self.tree = tree
        self._zxid = zxid
        self._journal = journal
        self._clock = clock
        self._sessions: dict[int, EmbeddedSession] = {}
        self._waiting: deque[_Write] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._failure: str | None = None
        """Why no write is accepted any more."""
        self._closed = False

    @classmethod
    async def open(cls, path: Path | None, clock: Clock) -> EmbeddedHome:
        """Opens or creates the file; without one, nothing outlives the process. Raises StoreUnavailable."""
        if path is None:
            return cls(Tree(), 0, MemoryJournal(), clock)
        journal = SqliteJournal(path)
        loaded = await journal.open()
        return cls(Tree(loaded.nodes), loaded.zxid, journal, clock)

    async def begin_session(self, *, close_home: bool = False) -> EmbeddedSession:
        """A new client of the store. With `close_home` the whole store closes with the session."""

        def decide(draft: Draft) -> Outcome:
            return Outcome([str(draft.begin_session())], [])

        (session_id,) = (await self._commit(decide, size=1)).results
        session = EmbeddedSession(self, int(str(session_id)), close_home=close_home)
        self._sessions[session.session_id] = session
        return session

    async def run(self, operations: Sequence[Operation], session_id: int) -> Outcome:
        """Does the operations, and answers when they are durable and visible. Raises MultiError."""

        def decide(draft: Draft) -> Outcome:
            return draft.run(operations, session_id, self._clock.now_ms())

        return await self._commit(decide, size=len(operations))

    async def end_session(self, session_id: int) -> None:
        """Removes what the session owns. Others' watches are told; its own are not."""
        if self._sessions.pop(session_id, None) is None:
            return

        def decide(draft: Draft) -> Outcome:
            # Decided here, not before, so that creations of this session that wait in front of it are seen.
            owned = set(self.tree.owned_by(session_id))
            for path, node in draft.changes.items():
                owned.discard(path)
                if node is not None and node.owner == session_id:
                    owned.add(path)
            return draft.run([Delete(path) for path in sorted(owned)], session_id, self._clock.now_ms())

        await self._commit(decide, size=1)

    async def close(self) -> None:
        """Ends all sessions and closes the file."""
        for session in list(self._sessions.values()):
            await session.expire()
        while self._committer is not None:
            await asyncio.wait([self._committer])
        if not self._closed:
            self._closed = True
            self._failure = self._failure or "the coordination store is closed"
            await self._journal.close()

    async def _commit(self, decide: Callable[[Draft], Outcome], size: int) -> Outcome:
        if self._failure is not None:
            raise StoreUnavailable(self._failure)
        loop = asyncio.get_running_loop()
        write = _Write(decide, size, loop.create_future())
        self._waiting.append(write)
        if self._committer is None:
            self._committer = loop.create_task(self._commit_waiting(), name="znodes-commit")
        # A caller that goes away must not take the write back: others may have been decided on top of it.
        return await asyncio.shield(write.done)

    async def _commit_waiting(self) -> None:
        batch: list[_Write] = []
        try:
            while self._waiting:
                batch = self._next_batch()
                await self._commit_batch(batch)
        except BaseException as error:
            # Our own bug, or the loop is ending: nobody may wait for ever for what nobody will do.
            failure = StoreUnavailable(f"the coordination store stopped: {error!r}")
            for write in batch:
                _settle(write.done, failure)
            self._fail(failure)
            raise
        finally:
            self._committer = None

    def _next_batch(self) -> list[_Write]:
        batch = [self._waiting.popleft()]
        size = batch[0].size
        while self._waiting and size + self._waiting[0].size <= _BATCH_OPERATIONS_MAX:
            size += self._waiting[0].size
            batch.append(self._waiting.popleft())
        return batch

    async def _commit_batch(self, batch: list[_Write]) -> None:
        draft = Draft(self.tree, self._zxid)
        outcomes: list[Outcome | ZnodeError] = []
        for write in batch:
            try:
                outcomes.append(write.decide(draft))
            except ZnodeError as error:
                outcomes.append(error)
        if draft.zxid != self._zxid:
            try:
                await self._journal.commit(draft.changes, draft.zxid)
            except (StoreFull, StoreUnavailable) as error:
                outcomes = [error] * len(batch)
                if isinstance(error, StoreUnavailable):
                    self._fail(error)
            else:
                self._publish(draft, outcomes)
        for write, outcome in zip(batch, outcomes, strict=True):
            _settle(write.done, outcome)

    def _publish(self, draft: Draft, outcomes: list[Outcome | ZnodeError]) -> None:
        """Watches are scheduled before the writers' answers, so they run first."""
        self._zxid = draft.zxid
        self.tree.publish(draft.changes)
        for outcome in outcomes:
            if isinstance(outcome, Outcome):
                for session in self._sessions.values():
                    session.tell(outcome.events)

    def _fail(self, error: StoreUnavailable) -> None:
        """What is on disk is uncertain now, so nobody may go on: neither those who wait nor those who come."""
        self._failure = str(error)
        while self._waiting:
            _settle(self._waiting.popleft().done, error)
        for session in list(self._sessions.values()):
            session.lose()
        self._sessions.clear()


def _settle(done: asyncio.Future[Outcome], outcome: Outcome | ZnodeError) -> None:
    if done.done():
        return
    if isinstance(outcome, Outcome):
        done.set_result(outcome)
    else:
        done.set_exception(outcome)
        done.exception()  # the caller may have gone away


class EmbeddedSession(ZnodeStore):
    def __init__(self, home: EmbeddedHome, session_id: int, *, close_home: bool) -> None:
        self._home = home
        self._session_id = session_id
        self._close_home = close_home
        self._state = SessionState.CONNECTED
        self._watches = WatchTable()
        self._listeners: dict[SessionListener, None] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: SessionListener) -> None:
        self._listeners[listener] = None

    def remove_listener(self, listener: SessionListener) -> None:
        self._listeners.pop(listener, None)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral, sequential)
        if make_parents:
            self._check([operation])
            return await self._create_with_parents(operation)
        return str(await self._run_one(operation))

    async def _create_with_parents(self, operation: Create) -> str:
        """Parents that somebody else creates at the same time are as good as our own, so look again and go on."""
        while True:
            missing: list[Operation] = []
            parent = parent_of(operation.path)
            while parent != ROOT and self._home.tree.get(parent) is None:
                missing.append(Create(parent))
                parent = parent_of(parent)
            operations = [*reversed(missing), operation]
            try:
                return str((await self.multi(operations))[-1])
            except MultiError as error:
                raced = isinstance(error.cause, NodeExists) and error.index < len(operations) - 1
                if not raced and not isinstance(error.cause, NoNode):
                    raise error.cause from None

    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, Stat]:
        found = self._read(path)
        if found is None:
            raise NoNode(path)
        if watch is not None:
            self._watches.watch_node(path, watch)
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return [self._read(path) for path in paths]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = await self._run_one(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._run_one(Delete(path, version))

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        found = self._read(path)
        if watch is not None:
            self._watches.watch_node(path, watch)
        return found[1] if found else None

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        if self._read(path) is None:
            raise NoNode(path)
        if watch is not None:
            self._watches.watch_children(path, watch)
        return self._home.tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self._check(operations)
        return (await self._home.run(operations, self._session_id)).results

    async def close(self) -> None:
        await self.expire()
        if self._close_home:
            await self._home.close()

    async def expire(self) -> None:
        """Ends the session as if its client had died. For `close`, and for tests."""
        if self._state is not SessionState.LOST:
            self.lose()
            await self._home.end_session(self._session_id)

    def lose(self) -> None:
        self._state = SessionState.LOST
        self._watches.clear()
        for listener in list(self._listeners):
            self._loop.call_soon(listener, SessionState.LOST)

    def tell(self, events: Sequence[WatchEvent]) -> None:
        """Calls the watches concerned. Each on its own turn of the loop: one that fails must not stop the others."""
        for event in events:
            for watch, told in self._watches.take(event):
                self._loop.call_soon(watch, told)

    async def _run_one(self, operation: Operation) -> OperationResult:
        try:
            return (await self.multi([operation]))[0]
        except MultiError as error:
            raise error.cause from None

    def _read(self, path: str) -> tuple[bytes, Stat] | None:
        self._check_alive()
        check_path(path)
        node = self._home.tree.get(path)
        return (node.data, node.stat) if node else None

    def _check(self, operations: Sequence[Operation]) -> None:
        self._check_alive()
        check_operations(operations)

    def _check_alive(self) -> None:
        if self._state is SessionState.LOST:
            raise SessionExpired("the session with the coordination store has ended: open a new one")


async def open_embedded(path: Path | None, clock: Clock) -> ZnodeStore:
    """The store of a single broker: one session, whose end closes the file."""
    home = await EmbeddedHome.open(path, clock)
    return await home.begin_session(close_home=True)
