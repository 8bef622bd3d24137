"""What tests of the registry of groups share: logs whose high watermark they move, and a look at the tree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.coordinators.decision import LoadedBatch
from tidelog.znodes import paths
from tidelog.znodes.errors import NoNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.coordinators.decision import StoredRecord, Transaction
    from tidelog.errors import BrokerError
    from tidelog.znodes.store import ZnodeStore

WAIT_S = 60

Node = tuple[bytes, int]
"""Data and the session that owns it, 0 for none."""


class SharedLog:
    """A log that outlives whoever leads it. Everything is safe at once, or when the test says so."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.records: list[StoredRecord | LoadedBatch] = []
        """What is part of a transaction takes one offset for a whole batch."""
        self.at_once = at_once
        self.waiting: list[tuple[int, Callable[[BrokerError | None], None]]] = []
        self.safe = 0

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[StoredRecord], _now_ms: int, transaction: Transaction | None = None) -> int:
        if transaction is None:
            self.records += records
        else:
            self.records.append(LoadedBatch([(record.key, record.value) for record in records], transaction))
        return self._appended()

    def mark(self, transaction: Transaction, *, committed: bool) -> None:
        """Appends a marker, which whoever leads must be told of."""
        self.records.append(LoadedBatch((), transaction, committed))
        self._appended()

    def marked(self, transaction: Transaction, *, committed: bool) -> int:
        assert self.records[-1] == LoadedBatch((), transaction, committed)
        return len(self.records) - 1

    def _appended(self) -> int:
        if self.at_once:
            self.safe = len(self.records)
        return len(self.records) - 1

    def when_safe(self, offset: int, then: Callable[[BrokerError | None], None]) -> None:
        if offset < self.safe:
            then(None)
        else:
            self.waiting.append((offset, then))

    def make_safe(self, end: int | None = None, error: BrokerError | None = None) -> None:
        self.safe = len(self.records) if end is None else end
        ready = [then for offset, then in self.waiting if offset < self.safe]
        self.waiting = [entry for entry in self.waiting if entry[0] >= self.safe]
        for then in ready:
            then(error)

    async def read(self) -> AsyncIterator[Sequence[LoadedBatch]]:
        for record in list(self.records):
            yield [record if isinstance(record, LoadedBatch) else LoadedBatch([(record.key, record.value)])]


async def look(znodes: ZnodeStore, root: str, on_change: Callable[[object], None] | None = None) -> dict[str, Node]:
    """Everything below a node, by its path relative to it, and the node itself as an empty one."""
    found: dict[str, Node] = {}
    visiting = [root]
    while visiting:
        path = visiting.pop()
        if await znodes.exists(path, watch=on_change) is None:
            continue
        try:
            data, stat = await znodes.get(path)
            visiting += [f"{path}/{name}" for name in await znodes.children(path, watch=on_change)]
        except NoNode:
            continue
        found[path.removeprefix(root)] = (data, stat.ephemeral_owner)
    return found


async def until(znodes: ZnodeStore, holds: Callable[[dict[str, Node]], bool], root: str = paths.CONSUMERS) -> None:
    """Waits for the tree to be as it should, told by watches of its own."""
    async with asyncio.timeout(WAIT_S):
        while True:
            changed = asyncio.Event()
            if holds(await look(znodes, root, lambda _event, changed=changed: changed.set())):  # type: ignore[misc]
                return
            await changed.wait()
