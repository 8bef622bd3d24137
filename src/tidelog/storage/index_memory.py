"""The bound on what loaded offset indexes may take together. The least used ones go back to their files.

Not thread safe: the event loop owns it. Recovery, which runs in threads, gives each partition its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.storage.offset_index import OffsetIndex


class IndexMemory:
    __slots__ = ("_entries", "_limit", "_loaded")

    def __init__(self, entries_max: int) -> None:
        self._limit = entries_max
        self._entries = 0
        self._loaded: dict[OffsetIndex, None] = {}

    @property
    def entries(self) -> int:
        return self._entries

    def grew(self, index: OffsetIndex, count: int) -> None:
        self._entries += count
        if index not in self._loaded:
            self._loaded[index] = None
        if self._entries > self._limit:
            self._evict(index)

    def shrank(self, index: OffsetIndex, count: int) -> None:
        assert index in self._loaded or count == 0
        self._entries -= count

    def forget(self, index: OffsetIndex) -> None:
        self._loaded.pop(index, None)

    def _evict(self, keep: OffsetIndex) -> None:
        """The clock algorithm, as for open files. One index alone may exceed the bound: it is in use."""
        chances = 2 * len(self._loaded)
        while self._entries > self._limit and chances > 0:
            chances -= 1
            oldest = next(iter(self._loaded))
            if oldest is keep or oldest.used:
                oldest.used = False
                del self._loaded[oldest]
                self._loaded[oldest] = None
            else:
                oldest.unload()
