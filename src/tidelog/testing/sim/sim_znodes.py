"""A broker's session with the simulated ZooKeeper: a `ZnodeStore` as `znodes/zookeeper.py` is one.

A client that hears nothing for two thirds of its session's timeout is SUSPENDED: it cannot tell whether the session
still lives. Once it gets through again it is CONNECTED if it does; else LOST, and CONNECTED anew with another session.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.testing.sim.ensemble import Wire
from tidelog.znodes.errors import ConnectionLost, MultiError, NodeExists, NoNode, SessionExpired, ZnodeError
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

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from tidelog.testing.sim.ensemble import Ensemble, ServerSession
    from tidelog.testing.sim.network import Address
    from tidelog.testing.sim.timeline import SimLoop

T = TypeVar("T")

_BEATS_PER_TIMEOUT = 6
_NO_SESSION = 0


class SimSession(ZnodeStore):
    def __init__(self, ensemble: Ensemble, address: Address, loop: SimLoop, timeout_s: float) -> None:
        self._ensemble = ensemble
        self._address = address
        self._loop = loop
        self._timeout_s = timeout_s
        self._wire = Wire(address, loop)
        self._session_id = _NO_SESSION
        self._state = SessionState.SUSPENDED
        self._listeners: dict[SessionListener, None] = {}
        self._heard_at = loop.time()
        self._pending: dict[asyncio.Future[object], None] = {}
        self._watch_generation = 0
        self._began = loop.create_future()
        self._closed = False

    @classmethod
    async def open(cls, ensemble: Ensemble, address: Address, loop: SimLoop, timeout_s: float) -> SimSession:
        session = cls(ensemble, address, loop, timeout_s)
        session._connect()
        session._beat()
        await session._began
        return session

    # -- the session --------------------------------------------------------------------------------------------

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

    async def close(self) -> None:
        if self._closed:
            return
        if self._state is SessionState.CONNECTED:
            session_id = self._session_id
            with suppress(ZnodeError):  # else it ends by itself
                await self._ask(lambda: self._ensemble.expire(session_id))
        self._closed = True
        self._turn(SessionState.LOST)

    def _beat(self) -> None:
        """Asks for a sign of life, and judges the last one."""
        if self._closed:
            return
        self._loop.call_later(self._timeout_s / _BEATS_PER_TIMEOUT, self._beat)
        silent_s = self._loop.time() - self._heard_at
        if self._state is SessionState.CONNECTED:
            if not self._wire.up or silent_s > self._timeout_s * 2 / 3:
                self._suspend()
            else:
                session_id = self._session_id
                self._ensemble.ask(self._wire, lambda: self._ensemble.heard(session_id), self._on_beat)
        if self._state is not SessionState.CONNECTED:
            self._connect()

    def _on_beat(self, _outcome: object) -> None:
        self._heard_at = self._loop.time()

    def _suspend(self) -> None:
        self._wire.up = False
        self._turn(SessionState.SUSPENDED)

    def _turn(self, state: SessionState) -> None:
        self._state = state
        if state is not SessionState.CONNECTED:
            self._watch_generation += 1
            pending, self._pending = self._pending, {}
            for future in pending:
                if not future.done():
                    future.set_exception(ConnectionLost("the answer was lost: it may have happened or not"))
        for listener in list(self._listeners):
            self._loop.call_soon(listener, state)

    def _connect(self) -> None:
        self._wire.up = False
        wire = self._wire = Wire(self._address, self._loop)
        session_id = self._session_id

        def resume() -> bool:
            return self._ensemble.resume_session(wire, session_id)

        if session_id == _NO_SESSION or self._state is SessionState.LOST:
            self._begin(wire)
        else:
            self._ensemble.ask(wire, resume, partial(self._on_resumed, wire))

    def _on_resumed(self, wire: Wire, outcome: object) -> None:
        if wire is not self._wire:
            return
        self._heard_at = self._loop.time()
        if outcome is True:
            self._turn(SessionState.CONNECTED)
        else:
            self._turn(SessionState.LOST)
            self._begin(wire)

    def _begin(self, wire: Wire) -> None:
        def begin() -> int:
            return self._ensemble.begin_session(wire, self._timeout_s)

        self._ensemble.ask(wire, begin, partial(self._on_begun, wire))

    def _on_begun(self, wire: Wire, outcome: object) -> None:
        if wire is not self._wire or not isinstance(outcome, int):
            return
        self._heard_at = self._loop.time()
        self._session_id = outcome
        self._turn(SessionState.CONNECTED)
        if not self._began.done():
            self._began.set_result(None)

    # -- asking -------------------------------------------------------------------------------------------------

    async def _ask(self, question: Callable[[], T]) -> T:
        """Raises what the question raises at the other end; ConnectionLost; SessionExpired."""
        if self._closed or self._state is SessionState.LOST:
            raise SessionExpired("the session with the coordination store has ended")
        if self._state is SessionState.CONNECTED and not self._wire.up:
            self._suspend()
        if self._state is SessionState.SUSPENDED:
            raise ConnectionLost("there is no connection to the coordination store")
        future: asyncio.Future[object] = self._loop.create_future()
        self._pending[future] = None
        session_id = self._session_id

        def in_session() -> T:
            if self._ensemble.heard(session_id) is None:
                raise SessionExpired("the session with the coordination store has ended")
            return question()

        def answer(outcome: T | ZnodeError) -> None:
            self._heard_at = self._loop.time()
            self._pending.pop(future, None)
            if future.done():
                return
            if isinstance(outcome, ZnodeError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self._ensemble.ask(self._wire, in_session, answer)
        result: T = await future  # type: ignore[assignment]
        return result

    def _server(self) -> ServerSession:
        return self._ensemble.sessions[self._session_id]

    def _guarded(self, watch: Watch) -> Watch:
        """Void once the session was suspended or lost after it was set."""
        return _Guarded(self, watch, self._watch_generation)

    def tell(self, watch: Watch, generation: int, event: WatchEvent) -> None:
        if generation == self._watch_generation:
            watch(event)

    # -- ZnodeStore ---------------------------------------------------------------------------------------------

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
        if not make_parents:
            return str(await self._run_one(operation))
        check_operations([operation])
        while True:
            try:
                return str(await self._run_one(operation))
            except NoNode:
                await self._create_parent(parent_of(path))

    async def _create_parent(self, path: str) -> None:
        assert path != ROOT
        try:
            await self.create(path, make_parents=True)
        except NodeExists:
            return  # somebody else's is as good

    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        guarded = self._guarded(watch) if watch else None

        def read() -> tuple[bytes, Stat]:
            node = self._ensemble.tree.get(path)
            if node is None:
                raise NoNode(path)
            if guarded is not None:
                self._server().watches.watch_node(path, guarded)
            return node.data, node.stat

        return await self._ask(read)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            check_path(path)

        def read() -> list[tuple[bytes, Stat] | None]:
            nodes = [self._ensemble.tree.get(path) for path in paths]
            return [(node.data, node.stat) if node else None for node in nodes]

        return await self._ask(read)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = await self._run_one(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._run_one(Delete(path, version))

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        guarded = self._guarded(watch) if watch else None

        def read() -> Stat | None:
            node = self._ensemble.tree.get(path)
            if guarded is not None:
                self._server().watches.watch_node(path, guarded)
            return node.stat if node else None

        return await self._ask(read)

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        check_path(path)
        guarded = self._guarded(watch) if watch else None

        def read() -> list[str]:
            if self._ensemble.tree.get(path) is None:
                raise NoNode(path)
            if guarded is not None:
                self._server().watches.watch_children(path, guarded)
            return self._ensemble.tree.children(path)

        return await self._ask(read)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        check_operations(operations)
        asked, session_id = list(operations), self._session_id
        return await self._ask(lambda: self._ensemble.run(asked, session_id))

    async def _run_one(self, operation: Operation) -> OperationResult:
        try:
            return (await self.multi([operation]))[0]
        except MultiError as error:
            raise error.cause from None


class _Guarded:
    """A watch as the server holds it. Equal ones are told once, as ZooKeeper does."""

    __slots__ = ("_generation", "_session", "_watch")

    def __init__(self, session: SimSession, watch: Watch, generation: int) -> None:
        self._session = session
        self._watch = watch
        self._generation = generation

    def __call__(self, event: WatchEvent) -> None:
        self._session.tell(self._watch, self._generation, event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Guarded) and (self._watch, self._generation) == (other._watch, other._generation)

    def __hash__(self) -> int:
        return hash(self._watch)
