"""The tree in memory, and what a write would make of it. Pure: no clock, no disk, no waiting.

Readers see the `Tree`. Writes are decided on a `Draft` over it; when the draft's changes are durable they are published
to the tree, all at once. Until then nobody sees them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.znodes.errors import (
    BadArguments,
    BadVersion,
    MultiError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    ZnodeError,
)
from tidelog.znodes.path_rules import ROOT, name_of, parent_of
from tidelog.znodes.store import (
    ANY_VERSION,
    Create,
    Delete,
    EventType,
    Operation,
    OperationResult,
    SetData,
    Stat,
    WatchEvent,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INT32 = 1 << 32


class Node(NamedTuple):
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    children_created: int
    """How many children it ever had. Sequence numbers come from it, so it must never go back."""
    num_children: int
    owner: int

    @property
    def stat(self) -> Stat:
        removed = self.children_created - self.num_children
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=self.children_created + removed,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=self.num_children,
        )

    def with_children(self, zxid: int, *, created: int, change: int) -> Node:
        """The node after a child came or went. Spelled out: `_replace` costs more than the rest of a creation."""
        data, czxid, mzxid, _, ctime_ms, mtime_ms, version, children_created, num_children, owner = self
        return Node(
            data,
            czxid,
            mzxid,
            zxid,
            ctime_ms,
            mtime_ms,
            version,
            children_created + created,
            num_children + change,
            owner,
        )


EMPTY_ROOT = Node(b"", 0, 0, 0, 0, 0, 0, 0, 0, 0)

Changes = dict[str, Node | None]
"""Nodes by path as they will be; None: deleted."""


class Tree:
    def __init__(self, nodes: Mapping[str, Node] | None = None) -> None:
        """`nodes` must have a root, and a parent for every other node."""
        self._nodes: dict[str, Node] = {ROOT: EMPTY_ROOT}
        self._names: dict[str, set[str]] = {}
        self._owned: dict[int, set[str]] = {}
        if nodes:
            self.publish(nodes)

    def get(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        return sorted(self._names.get(path, ()))

    def owned_by(self, session_id: int) -> list[str]:
        """The ephemeral nodes of a session."""
        return sorted(self._owned.get(session_id, ()))

    def publish(self, changes: Mapping[str, Node | None]) -> None:
        for path, node in changes.items():
            if node is None:
                self._forget(path)
            else:
                self._remember(path, node)

    def _remember(self, path: str, node: Node) -> None:
        before = self._nodes.get(path)
        if before is None:
            if path != ROOT:
                self._names.setdefault(parent_of(path), set()).add(name_of(path))
        elif before.owner != node.owner:  # deleted and created anew within one batch
            self._disown(path, before.owner)
        self._nodes[path] = node
        if node.owner:
            self._owned.setdefault(node.owner, set()).add(path)

    def _forget(self, path: str) -> None:
        node = self._nodes.pop(path, None)
        if node is None:  # created and deleted within one batch
            return
        parent = parent_of(path)
        siblings = self._names[parent]
        siblings.discard(name_of(path))
        if not siblings:
            del self._names[parent]
        self._disown(path, node.owner)

    def _disown(self, path: str, owner: int) -> None:
        if owner:
            owned = self._owned[owner]
            owned.discard(path)
            if not owned:
                del self._owned[owner]


class Outcome(NamedTuple):
    results: list[OperationResult]
    events: list[WatchEvent]


class Draft:
    """Transactions decided one after the other, each on what the ones before it left."""

    def __init__(self, tree: Tree, zxid: int) -> None:
        self.changes: Changes = {}
        self.zxid = zxid
        """The last transaction's number."""
        self._tree = tree

    def run(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> Outcome:
        """Does all operations or none. Raises MultiError, with nothing changed."""
        transaction = _Transaction(self._tree, self.changes, self.zxid + 1, session_id, now_ms)
        results = []
        for index, operation in enumerate(operations):
            try:
                results.append(transaction.apply(operation))
            except ZnodeError as error:
                raise MultiError(index, error) from None
        if transaction.changes:
            self.zxid += 1
            self.changes.update(transaction.changes)
        return Outcome(results, transaction.events)

    def begin_session(self) -> int:
        """A session id that no other session ever had: it takes a transaction's number."""
        self.zxid += 1
        return self.zxid


class _Transaction:
    def __init__(self, tree: Tree, before: Changes, zxid: int, session_id: int, now_ms: int) -> None:
        self.changes: Changes = {}
        self.events: list[WatchEvent] = []
        self._tree = tree
        self._before = before
        self._zxid = zxid
        self._session_id = session_id
        self._now_ms = now_ms

    def apply(self, operation: Operation) -> OperationResult:
        if isinstance(operation, Create):
            return self._create(operation)
        if isinstance(operation, SetData):
            return self._set(operation)
        node = self._existing(operation.path, operation.version)
        if isinstance(operation, Delete):
            self._delete(operation.path, node)
        return None

    def _find(self, path: str) -> Node | None:
        for changes in (self.changes, self._before):
            if path in changes:
                return changes[path]
        return self._tree.get(path)

    def _existing(self, path: str, version: int) -> Node:
        node = self._find(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _create(self, operation: Create) -> str:
        path = operation.path
        parent_path = parent_of(path)
        parent = self._find(parent_path)
        if parent is None:
            raise NoNode(parent_path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        if operation.sequential:
            path = f"{path}{parent.children_created % _INT32:010d}"
        if self._find(path) is not None:
            raise NodeExists(path)
        zxid, now_ms = self._zxid, self._now_ms
        owner = self._session_id if operation.ephemeral else 0
        self.changes[path] = Node(bytes(operation.data), zxid, zxid, zxid, now_ms, now_ms, 0, 0, 0, owner)
        self.changes[parent_path] = parent.with_children(zxid, created=1, change=1)
        self.events.append(WatchEvent(EventType.CREATED, path))
        return path

    def _set(self, operation: SetData) -> Stat:
        node = self._existing(operation.path, operation.version)
        changed = node._replace(
            data=bytes(operation.data), mzxid=self._zxid, mtime_ms=self._now_ms, version=node.version + 1
        )
        self.changes[operation.path] = changed
        self.events.append(WatchEvent(EventType.DATA_CHANGED, operation.path))
        return changed.stat

    def _delete(self, path: str, node: Node) -> None:
        if path == ROOT:
            raise BadArguments("the root cannot be deleted")
        if node.num_children:
            raise NotEmpty(path)
        parent_path = parent_of(path)
        parent = self._find(parent_path)
        assert parent is not None
        self.changes[path] = None
        self.changes[parent_path] = parent.with_children(self._zxid, created=0, change=-1)
        self.events.append(WatchEvent(EventType.DELETED, path))
