"""Waiting fetches of readers who see a transaction only when it has ended: they wait for the last stable offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.replication.waiting import FetchWait


class StableReaders:
    __slots__ = ("_told_bytes", "_told_offset", "waits")

    def __init__(self) -> None:
        self.waits: dict[FetchWait, None] = {}
        """In the order in which they came."""
        self._told_offset = 0
        self._told_bytes = 0

    def watch(self, wait: FetchWait, stable_offset: int, visible_bytes: int) -> None:
        if not self.waits:
            self._told_offset, self._told_bytes = stable_offset, visible_bytes
        self.waits[wait] = None

    def tell(self, stable_offset: int, high_watermark: int, visible_bytes: int) -> None:
        """There may be more to read. `visible_bytes` lie below the high watermark: how many are stable is estimated."""
        gained = stable_offset - self._told_offset
        if gained > 0:
            hidden = max(high_watermark - self._told_offset, 1)
            news = max(gained, (visible_bytes - self._told_bytes) * gained // hidden)
            self._told_offset = stable_offset
            self._told_bytes += news
            for wait in tuple(self.waits):
                wait.more(news)
