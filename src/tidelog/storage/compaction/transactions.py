"""What a cleaning knows of the transactions it passes, batch by batch in the log's order. PURE.

Records of an aborted one go at once, and supersede nothing. A marker stays as long as a batch of its transaction does,
be it emptied: readers must be able to tell where the transaction ends. After that it goes like a tombstone, some time
later, and with it its entry in `.txnindex`: an entry without its marker would have readers drop what comes later.

Nothing below the last stable offset is undecided, and nothing above it is cleaned.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.records.header import BatchHeader
    from tidelog.storage.aborted_index import AbortedEntry


class PassedTransactions:
    __slots__ = ("_aborted", "_by_marker", "_with_batches")

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        """`aborted` are all whose markers may be met, or lie beyond."""
        self._by_marker = {each.last_offset: each for each in aborted}
        self._aborted: defaultdict[int, deque[AbortedEntry]] = defaultdict(deque)
        for each in sorted(self._by_marker.values(), key=lambda each: each.first_offset):
            self._aborted[each.producer_id].append(each)
        self._with_batches: set[int] = set()
        """Producers of whose transaction a batch was met since their last marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Of a data batch."""
        if not header.transactional:
            return False
        self._with_batches.add(header.producer_id)
        coming = self._aborted.get(header.producer_id)
        if coming is None:
            return False
        while coming and coming[0].last_offset < header.base_offset:
            coming.popleft()
        return bool(coming) and coming[0].first_offset <= header.base_offset

    def ends_batches(self, header: BatchHeader) -> bool:
        """Of a control batch: whether a batch of the transaction that it ends was met."""
        met = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return met

    def entry_of(self, header: BatchHeader) -> AbortedEntry | None:
        """The transaction that a marker aborts, if it does."""
        return self._by_marker.get(header.base_offset)
