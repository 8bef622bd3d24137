"""A coordinator's log with somebody looking on: it keeps a book of what has become safe, and of what that changed.

The coordinator reads and writes through it as if nobody were there: its replies are given out first, and what is done
here after that is no more than the coordinator itself does with each record.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.coordinators.decision import LoadedBatch
from tidelog.coordinators.groups.registry import GroupBook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from tidelog.coordinators.decision import StoredRecord, Transaction
    from tidelog.coordinators.groups.registry import Slot, Touch
    from tidelog.coordinators.runtime import StateLog
    from tidelog.errors import BrokerError

SLOTS_MAX = 1000
"""Offsets of a group that are remembered one by one; when more of them have changed, the group is compared whole."""

Changed = set["Slot"] | None
"""Offsets that have changed; None if anything may have."""


class FollowedLog:
    """Fits `coordinators.runtime.StateLog`."""

    def __init__(self, log: StateLog, on_news: Callable[[], None]) -> None:
        self._log = log
        self._on_news = on_news
        self.book = GroupBook()
        self.ready = False
        """Whether the book has all that is safe. Not while the log is read, and until its end is safe."""
        self.loads = 0
        """How often the book was begun anew."""
        self._touched: dict[str, Changed] = {}
        self._unsafe: deque[tuple[int, LoadedBatch]] = deque()
        """What was appended and may yet be lost. Whoever asked for it waits, which bounds it."""
        self._read_to: int | None = None
        """The end of what was read; None before that is known."""

    # --- for the coordinator ---

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def append(self, records: Sequence[StoredRecord], now_ms: int, transaction: Transaction | None = None) -> int:
        last_offset = self._log.append(records, now_ms, transaction)
        appended = [(record.key, record.value) for record in records]
        self._unsafe.append((last_offset, LoadedBatch(appended, transaction)))
        return last_offset

    def marked(self, transaction: Transaction, *, committed: bool) -> int:
        last_offset = self._log.marked(transaction, committed=committed)
        self._unsafe.append((last_offset, LoadedBatch((), transaction, committed)))
        return last_offset

    def when_safe(self, offset: int, then: Callable[[BrokerError | None], None]) -> None:
        self._log.when_safe(offset, partial(self._settled, offset, then))

    async def read(self) -> AsyncIterator[Sequence[LoadedBatch]]:
        self.ready = False
        self._read_to = None
        self.loads += 1
        book = self.book = GroupBook()
        self._touched.clear()
        self._unsafe.clear()
        async for portion in self._log.read():
            for batch in portion:
                _take_in(book, batch)
            yield portion
        self._read_to = self._log.end_offset

    def _settled(self, offset: int, then: Callable[[BrokerError | None], None], error: BrokerError | None) -> None:
        then(error)
        if error is not None:
            return  # the coordinator reads everything again
        while self._unsafe and self._unsafe[0][0] <= offset:
            _last_offset, batch = self._unsafe.popleft()
            for touch in _take_in(self.book, batch):
                self._touch(touch.group_id, touch.slot)
        if not self.ready and self._read_to is not None and offset >= self._read_to - 1:
            self.ready = True
            for group_id in self.book:
                self._touch(group_id)
        if self.ready:
            self._on_news()

    # --- for whoever looks on ---

    def touch(self, group_id: str) -> None:
        """Has the group compared whole."""
        self._touch(group_id)
        self._on_news()

    def take_touched(self, count_max: int) -> Iterator[tuple[str, Changed]]:
        """Groups to look at, longest waiting first."""
        for group_id in list(islice(self._touched, count_max)):
            yield group_id, self._touched.pop(group_id)

    def _touch(self, group_id: str, slot: Slot | None = None) -> None:
        if slot is None:
            self._touched[group_id] = None
            return
        slots = self._touched.setdefault(group_id, set())
        if slots is not None:
            slots.add(slot)
            if len(slots) > SLOTS_MAX:
                self._touched[group_id] = None


def _take_in(book: GroupBook, batch: LoadedBatch) -> list[Touch]:
    """Has the book know what a batch says, and tells what that changed."""
    if batch.transaction is None:
        touches = (book.apply(key, value) for key, value in batch.records)
        return [touch for touch in touches if touch is not None]
    for key, value in batch.records:
        book.apply_in_transaction(batch.transaction, key, value)
    if batch.committed is None:
        return []
    return book.end_transaction(batch.transaction, committed=batch.committed)
