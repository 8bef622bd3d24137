"""Which transactions of a partition hold its last stable offset back. PURE.

Every open one does, and one that has ended does until its marker lies below the high watermark: before that, another
leader may not know that it ended.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import NamedTuple

NO_OFFSET = -1
NOTHING_UNSTABLE = 2**63 - 1
"""The first unstable offset while there is none: beyond every log."""


class CompletedTransaction(NamedTuple):
    """A transaction that held data, and its marker: `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Transactions:
    __slots__ = ("_ended", "_open", "_unstable", "first_unstable_offset")

    def __init__(self) -> None:
        self._open: list[int] = []
        """First offsets, rising."""
        self._ended: deque[CompletedTransaction] = deque()
        """In order of their markers, as far as those are not known to be safe."""
        self._unstable: list[int] = []
        """First offsets of both, rising."""
        self.first_unstable_offset = NOTHING_UNSTABLE

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def begin(self, first_offset: int) -> None:
        insort(self._open, first_offset)
        insort(self._unstable, first_offset)
        self.first_unstable_offset = self._unstable[0]

    def end(self, completed: CompletedTransaction) -> None:
        at = bisect_left(self._open, completed.first_offset)
        assert self._open[at] == completed.first_offset, "only an open transaction ends"
        del self._open[at]
        self._ended.append(completed)

    def settle(self, high_watermark: int) -> None:
        """Markers below `high_watermark` are safe: their transactions hold nothing back any more."""
        ended, unstable = self._ended, self._unstable
        while ended and ended[0].last_offset < high_watermark:
            del unstable[bisect_left(unstable, ended.popleft().first_offset)]
        self.first_unstable_offset = unstable[0] if unstable else NOTHING_UNSTABLE

    def first_open_offset(self, otherwise: int) -> int:
        return self._open[0] if self._open else otherwise
