"""The watches of one session, and which of them a change concerns. Pure.

A watch set by `get` or `exists` waits for the node itself, one set by `children` for its children; deletion concerns
both. Each is told once. Setting the same callback twice on the same node is setting it once, as in ZooKeeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.znodes.path_rules import parent_of
from tidelog.znodes.store import EventType, Watch, WatchEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

_Watches = dict[str, dict[Watch, None]]


class WatchTable:
    def __init__(self) -> None:
        self._on_node: _Watches = {}
        self._on_children: _Watches = {}

    def watch_node(self, path: str, watch: Watch) -> None:
        self._on_node.setdefault(path, {})[watch] = None

    def watch_children(self, path: str, watch: Watch) -> None:
        self._on_children.setdefault(path, {})[watch] = None

    def clear(self) -> None:
        self._on_node.clear()
        self._on_children.clear()

    def take(self, event: WatchEvent) -> Iterator[tuple[Watch, WatchEvent]]:
        """The watches that what happened to a node concerns, each with what it is to be told. They are forgotten."""
        if not self._on_node and not self._on_children:
            return
        concerned = self._on_node.pop(event.path, {})
        if event.type is EventType.DELETED:
            concerned |= self._on_children.pop(event.path, {})
        for watch in concerned:
            yield watch, event
        if event.type is not EventType.DATA_CHANGED:
            parent = parent_of(event.path)
            for watch in self._on_children.pop(parent, {}):
                yield watch, WatchEvent(EventType.CHILDREN_CHANGED, parent)
