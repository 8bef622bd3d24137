"""Replies that must wait for an earlier one: kept in request order until nothing is ahead of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.net.outgoing import Outgoing

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tidelog.net.outgoing import Reply


class ReplyOrder:
    """Starts with a reply that is still outstanding, or is empty, whenever `pop_ready` has given None."""

    __slots__ = ("entries", "finished_bytes")

    def __init__(self) -> None:
        self.entries: deque[asyncio.Future[Reply] | Outgoing] = deque()
        self.finished_bytes = 0
        """What the finished replies among the entries will take on the wire."""

    def add(self, entry: asyncio.Future[Reply] | Outgoing) -> None:
        self.entries.append(entry)
        if isinstance(entry, Outgoing):
            self.finished_bytes += entry.size

    def pop_ready(self) -> asyncio.Future[Reply] | Outgoing | None:
        """Takes out the first entry if it is finished: a reply, or a future that is done."""
        if not self.entries:
            return None
        head = self.entries[0]
        if isinstance(head, Outgoing):
            self.finished_bytes -= head.size
        elif not head.done():
            return None
        return self.entries.popleft()

    def abandon(self, callback: Callable[[asyncio.Future[Reply]], None]) -> None:
        """Drops everything: futures lose `callback` and are cancelled."""
        self.finished_bytes = 0
        while self.entries:
            entry = self.entries.popleft()
            if isinstance(entry, Outgoing):
                continue
            entry.remove_done_callback(callback)
            if not entry.cancel() and not entry.cancelled():
                entry.exception()  # seen, and of no use to anybody any more
