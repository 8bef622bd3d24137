"""The coordination store as the rest of the broker sees it: a tree of small nodes, as in ZooKeeper.

Promises of every home of the store:

- A write is answered only when it is durable, and no reader sees it before that.
- Writes of one session happen in the order in which they were started; a multi happens whole or not at all.
- A watch is called once, on the event loop, at the first change after the read that set it. What is read afterwards may
  already be a later state. It is called before the answer of any write of the same session that happened later.
- Watches are void once the session is SUSPENDED or LOST: what changed meanwhile is not told, so read and set them anew.
- SUSPENDED means that the session may or may not still exist: whoever leads by an ephemeral node stops acting.
  LOST means that it and its ephemeral nodes are gone.
- While SUSPENDED every request fails with ConnectionLost, at once, and so do those that are under way when it begins:
  wait for CONNECTED, which tells that the session still exists. While LOST they fail with SessionExpired.
- No request that was started in one session happens in another.
- After LOST, a home that is elsewhere begins a new session by itself and tells it as CONNECTED, with another
  `session_id`. There is none after `close`, nor in a home that is part of this process: it ends with its session.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.znodes.errors import NoNode, TooLarge
from tidelog.znodes.path_rules import check_path, child_of

if TYPE_CHECKING:
    from collections.abc import Sequence

ANY_VERSION = -1

REQUEST_MAX_BYTES = (1 << 20) - 4096
"""Data and paths of one request. ZooKeeper takes 1 MiB including its own overhead, for which this leaves room."""
_OPERATION_OVERHEAD_BYTES = 64
_DELETIONS_PER_MULTI = 500


class Stat(NamedTuple):
    czxid: int
    """The transaction that created the node: unique over all nodes and lives of the store."""
    mzxid: int
    """The transaction that last set its data."""
    pzxid: int
    """The transaction that last added or removed a child."""
    ctime_ms: int
    mtime_ms: int
    version: int
    """How often the data was set."""
    cversion: int
    """How often children were added and removed."""
    ephemeral_owner: int
    """The session id whose end removes the node; 0 if it stays."""
    data_length: int
    num_children: int


class EventType(IntEnum):
    """Numbers as ZooKeeper has them."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    type: EventType
    path: str


Watch = Callable[[WatchEvent], None]


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


SessionListener = Callable[[SessionState], None]


@dataclass(frozen=True, slots=True)
class Create:
    """Result: the path, which is only known afterwards if sequential."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Result: the Stat afterwards."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Result: None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fails the multi unless the node exists and has this version. Result: None."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
OperationResult = str | Stat | None


def check_operations(operations: Sequence[Operation], prefix_bytes: int = 0) -> None:
    """Raises BadArguments or TooLarge for what no home of the store accepts, whatever the tree holds. `prefix_bytes`
    is what the home puts before each path."""
    size = 0
    for operation in operations:
        path = operation.path
        check_path(path, sequential=isinstance(operation, Create) and operation.sequential)
        size += (len(path) if path.isascii() else len(path.encode())) + prefix_bytes + _OPERATION_OVERHEAD_BYTES
        if isinstance(operation, (Create, SetData)):
            size += len(operation.data)
    if size > REQUEST_MAX_BYTES:
        raise TooLarge(f"a request of {size} bytes is over the limit of {REQUEST_MAX_BYTES}: split it")


class ZnodeStore(ABC):
    """One session with the store."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """Never 0, and never that of an earlier session. While LOST, that of the session which was lost."""

    @property
    @abstractmethod
    def state(self) -> SessionState: ...

    @abstractmethod
    def add_listener(self, listener: SessionListener) -> None:
        """Calls `listener` on the event loop with each new state of the session."""

    @abstractmethod
    def remove_listener(self, listener: SessionListener) -> None: ...

    @abstractmethod
    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Creates a node and returns its path, which ends in ten digits if sequential. Raises NodeExists, NoNode (no
        parent), NoChildrenForEphemerals.

        Parents that are missing come into being together with the node; it counts as started when that is known."""

    @abstractmethod
    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data and Stat. The watch is told of a change of data or of the deletion. Raises NoNode, setting no watch."""

    @abstractmethod
    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """The same for many nodes in one go, None for those that do not exist. Not one moment's picture of them all."""

    @abstractmethod
    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replaces the data if the node has `version`. Raises NoNode, BadVersion."""

    @abstractmethod
    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""

    @abstractmethod
    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        """The watch is told of creation, change of data or deletion."""

    @abstractmethod
    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted. The watch is told of one added or removed, or of the node's own deletion.
        Raises NoNode, setting no watch."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Does all operations, in order, or none. Raises MultiError."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the session: its ephemeral nodes vanish at once. Safe to repeat."""

    async def delete_recursively(self, path: str) -> bool:
        """Deletes a node and everything below it, the node itself last. False if it did not exist.

        A large subtree takes several multis, so a reader may see half of it, and an interrupted deletion is to be
        repeated. It fails like any multi when somebody else changes the subtree meanwhile.
        """
        level = [path]
        found: list[str] = []
        while level:
            nodes = await self.get_many(level)
            there = [(each, node) for each, node in zip(level, nodes, strict=True) if node is not None]
            found += [each for each, _ in there]
            parents = [each for each, (_, stat) in there if stat.num_children]
            names = await asyncio.gather(*(self._children_or_none(parent) for parent in parents))
            level = [child_of(parent, name) for parent, below in zip(parents, names, strict=True) for name in below]
        deletions = [Delete(each) for each in reversed(found)]
        portions = range(0, len(deletions), _DELETIONS_PER_MULTI)
        await asyncio.gather(*(self.multi(deletions[start : start + _DELETIONS_PER_MULTI]) for start in portions))
        return bool(found)

    async def _children_or_none(self, path: str) -> list[str]:
        try:
            return await self.children(path)
        except NoNode:
            return []
