"""A session with ZooKeeper as a `ZnodeStore`: see there for what it promises.

Requests go out in the order in which they were started, several before the first answer is there. Bulk reads take one
request for many nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidelog.znodes.errors import (
    BadArguments,
    ConnectionLost,
    MultiError,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreUnavailable,
    ZnodeError,
)
from tidelog.znodes.kazoo_link import Link
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
from tidelog.znodes.zookeeper_requests import Translator, UnknownRequest, error_of, node_of, stat_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.znodes.connect_string import Ensemble

_NODES_PER_READ = 100
_TRIES_TO_READ_MANY = 3
_CLOSED_WITHIN_S = 10.0
_SESSION_ID_MASK = (1 << 64) - 1
"""Tools show session ids as hexadecimal numbers without a sign."""

logger = logging.getLogger(__name__)


class ZooKeeperSession(ZnodeStore):
    def __init__(
        self,
        ensemble: Ensemble,
        *,
        session_timeout_ms: int,
        digest: tuple[str, str] | None,
        protect: bool,
        requests_in_flight_max: int,
    ) -> None:
        self._ensemble = ensemble
        self._loop = asyncio.get_running_loop()
        self._protect = protect
        self._translator = Translator(ensemble.chroot, protect=protect)
        self._link = Link(
            ensemble.servers, session_timeout_ms=session_timeout_ms, digest=digest, hear_state=self._hear_state
        )
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._closed = False
        self._listeners: dict[SessionListener, None] = {}
        self._waiting: deque[_Request] = deque()
        self._in_flight: dict[_Request, None] = {}
        self._in_flight_max = requests_in_flight_max
        self._reads_many = True
        """Whether the servers know the request that reads many nodes."""
        self._tries_to_read_many = 0
        self._connected = asyncio.Event()

    @classmethod
    async def open(
        cls,
        ensemble: Ensemble,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        digest: tuple[str, str] | None,
        protect: bool,
        requests_in_flight_max: int,
    ) -> Self:
        session = cls(
            ensemble,
            session_timeout_ms=session_timeout_ms,
            digest=digest,
            protect=protect,
            requests_in_flight_max=requests_in_flight_max,
        )
        session._link.start()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await session._begin()
        except TimeoutError:
            failure = session._unreachable(connection_timeout_ms)
            await session._link.close(0)
            raise failure from None
        except BaseException:
            await session._link.close(0)
            raise
        return session

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
        try:
            return str(await self._write(operation))
        except NoNode:
            if not make_parents:
                raise
        return await self._create_with_parents(operation)

    async def _create_with_parents(self, operation: Create) -> str:
        """Parents that somebody else creates at the same time are as good as our own, so look again and go on."""
        ancestors = [parent_of(operation.path)]
        while ancestors[-1] != ROOT:
            ancestors.append(parent_of(ancestors[-1]))
        while True:
            found = await self.get_many(ancestors)
            missing = [Create(path) for path, node in zip(ancestors, found, strict=True) if node is None]
            operations = [*reversed(missing), operation]
            try:
                return str((await self.multi(operations))[-1])
            except MultiError as error:
                raced = isinstance(error.cause, NodeExists) and error.index < len(operations) - 1
                if not raced and not isinstance(error.cause, NoNode):
                    raise error.cause from None

    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        return node_of(await self._ask(self._translator.read_data(path, self._watcher(watch)), path))

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            check_path(path)
        if not self._reads_many:
            return await self._get_one_by_one(paths)
        portions = [paths[start : start + _NODES_PER_READ] for start in range(0, len(paths), _NODES_PER_READ)]
        requests = [self._ask(self._translator.read_many(portion), portion[0]) for portion in portions]
        found: list[tuple[bytes, Stat] | None] = []
        for portion, request in zip(portions, requests, strict=True):
            answers = await request
            found += [_node_or_none(answer, path) for path, answer in zip(portion, answers, strict=True)]
        return found

    async def _get_one_by_one(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        requests = [self._ask(self._translator.read_data(path, None), path) for path in paths]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        return [_node_or_none(answer, path) for path, answer in zip(paths, answers, strict=True)]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = await self._write(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write(Delete(path, version))

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        stat = await self._ask(self._translator.read_stat(path, self._watcher(watch)), path)
        return stat_of(stat) if stat else None

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        check_path(path)
        return sorted(await self._ask(self._translator.read_children(path, self._watcher(watch)), path))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self._check_alive()
        check_operations(operations, self._translator.prefix_bytes)
        for index, operation in enumerate(operations):
            if _deletes_the_root(operation):
                raise MultiError(index, _root_stays())
        if not operations:
            return []
        answers = await self._ask(self._translator.write_all(operations), operations[0].path)
        return self._translator.results(operations, answers)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._turn(SessionState.LOST)
            await self._link.close(_CLOSED_WITHIN_S)

    # -- asking -------------------------------------------------------------------------------------------------------

    async def _write(self, operation: Operation) -> OperationResult:
        check_operations([operation], self._translator.prefix_bytes)
        if _deletes_the_root(operation):
            raise _root_stays()
        return self._translator.result(await self._ask(self._translator.write(operation), operation.path))

    def _ask(self, message: Any, path: str) -> asyncio.Future[Any]:
        """Starts a request: it has its place among the others now, even if nobody waits for the answer any more. What
        it is refused with is about `path`."""
        self._check_alive()
        request = _Request(message, path, self._loop.create_future())
        self._waiting.append(request)
        self._send_waiting()
        return request.answer

    def _send_waiting(self) -> None:
        while self._waiting and len(self._in_flight) < self._in_flight_max:
            request = self._waiting.popleft()
            self._in_flight[request] = None
            # Where the connection's state has changed without our knowing yet, we are told soon, and fail it then.
            self._link.send(request.message, partial(self._hear, request))

    def _hear(self, request: _Request, value: Any, error: Exception | None) -> None:
        if request in self._in_flight:
            del self._in_flight[request]
            request.settle(value, None if error is None else error_of(error, request.path))
            self._send_waiting()

    def _check_alive(self) -> None:
        if self._closed:
            raise SessionExpired("the session with ZooKeeper has been closed")
        if self._state is SessionState.LOST:
            raise SessionExpired("the session with ZooKeeper has ended: wait for the next one")
        if self._state is SessionState.SUSPENDED:
            raise ConnectionLost(
                f"there is no connection to ZooKeeper ({', '.join(self._ensemble.servers)}) at present"
            )

    # -- the session --------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Waits for a server, and looks whether our root is there and what the server can do."""
        while True:
            await self._connected.wait()
            try:
                await self._make_root()
                await self._look_for_bulk_reads()
            except (ConnectionLost, SessionExpired):
                await asyncio.sleep(0)  # the state may not have been told yet
            else:
                return

    async def _make_root(self) -> None:
        above = Translator("", protect=self._protect)
        path = self._ensemble.chroot
        if not path or await self._ask(above.read_stat(path, None), path):
            return
        names = path[1:].split(ROOT)
        for depth in range(1, len(names) + 1):
            node = ROOT + ROOT.join(names[:depth])
            try:
                await self._ask(above.write(Create(node)), node)
            except NodeExists:
                continue

    async def _look_for_bulk_reads(self) -> None:
        """Servers before 3.6 end the connection over a request that they do not know."""
        if not self._reads_many:
            return
        self._tries_to_read_many += 1
        try:
            await self._ask(self._translator.read_many([ROOT]), ROOT)
        except (UnknownRequest, ConnectionLost) as error:
            # Once may be chance.
            self._reads_many = isinstance(error, ConnectionLost) and self._tries_to_read_many < _TRIES_TO_READ_MANY
            if not self._reads_many:
                logger.warning("the ZooKeeper servers are older than 3.6: reading many nodes takes longer")
            await self._ask(self._translator.read_stat(ROOT, None), ROOT)

    def _unreachable(self, connection_timeout_ms: int) -> StoreUnavailable:
        tried = [
            f"{server} ({failure})" if failure else server
            for server, failure in ((server, self._link.failures.get(server)) for server in self._ensemble.servers)
        ]
        return StoreUnavailable(
            f"no ZooKeeper server let a session begin within {connection_timeout_ms} ms, of {', '.join(tried)}: check "
            "zookeeper.connect and that a majority of the servers is running"
        )

    def _hear_state(self, state: SessionState, session_id: int) -> None:
        if self._closed:
            return
        if state is SessionState.CONNECTED:
            self._session_id = session_id
            self._connected.set()
        else:
            self._connected.clear()
        self._turn(state)

    def _turn(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        if state is SessionState.CONNECTED:
            logger.info("session %#x with ZooKeeper: connected", self._session_id & _SESSION_ID_MASK)
        elif state is SessionState.SUSPENDED:
            logger.warning("the connection to ZooKeeper broke: trying %s", ", ".join(self._ensemble.servers))
            self._fail_all(ConnectionLost("the connection to ZooKeeper broke: what was asked may have happened or not"))
        else:
            if not self._closed:
                logger.warning("session %#x with ZooKeeper has expired", self._session_id & _SESSION_ID_MASK)
            self._fail_all(SessionExpired("the session with ZooKeeper has ended"))
        for listener in list(self._listeners):
            self._loop.call_soon(listener, state)

    def _fail_all(self, failure: ZnodeError) -> None:
        failed = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for request in failed:
            request.settle(None, failure)

    # -- watches ------------------------------------------------------------------------------------------------------

    def _watcher(self, watch: Watch | None) -> _Watcher | None:
        return None if watch is None else _Watcher(self, watch)

    def tell(self, watch: Watch, event: Any) -> None:
        """Runs on kazoo's thread."""
        told = self._translator.event(event)
        if told is not None:
            self._link.later(self._call_watch, watch, told)

    def _call_watch(self, watch: Watch, told: WatchEvent) -> None:
        # Not at once: one that fails must not stop the others.
        if self._state is SessionState.CONNECTED:
            self._loop.call_soon(watch, told)


class _Request:
    __slots__ = ("answer", "message", "path")

    def __init__(self, message: Any, path: str, answer: asyncio.Future[Any]) -> None:
        self.message = message
        self.path = path
        self.answer = answer

    def settle(self, value: Any, error: ZnodeError | None) -> None:
        if self.answer.done():
            return  # whoever asked has gone away
        if error is None:
            self.answer.set_result(value)
        else:
            self.answer.set_exception(error)
            self.answer.exception()  # it may go away before it looks


@dataclass(frozen=True, slots=True)
class _Watcher:
    """A watch as kazoo keeps it. Equal ones are called once, as in ZooKeeper."""

    session: ZooKeeperSession
    watch: Watch

    def __call__(self, event: Any) -> None:
        self.session.tell(self.watch, event)


def _node_or_none(answer: Any, path: str) -> tuple[bytes, Stat] | None:
    if not isinstance(answer, BaseException):
        return node_of(answer)
    assert isinstance(answer, Exception)
    error = error_of(answer, path)
    if isinstance(error, NoNode):
        return None
    raise error


def _deletes_the_root(operation: Operation) -> bool:
    """It would delete the chroot, which to ZooKeeper is a node like any other."""
    return isinstance(operation, Delete) and operation.path == ROOT


def _root_stays() -> BadArguments:
    return BadArguments("the root cannot be deleted")
