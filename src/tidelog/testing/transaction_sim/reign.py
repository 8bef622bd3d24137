"""The partition of `__transaction_state`, as one coordinator after the other writes it.

What is safe stays. Of what is appended but not safe yet, the next leader has as much as chance wills: so it may or may
not know what the one before had decided and told nobody. A coordinator that was deposed without noticing goes on with a
copy of its own, of which nothing becomes safe any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.decision import LoadedBatch
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.coordinators.decision import StoredRecord, Transaction
    from tidelog.coordinators.stored import RecordFormat
    from tidelog.testing.sim.timeline import SimLoop

StoredBatch = tuple[tuple[bytes, bytes | None], ...]


class Reign:
    """Fits `coordinators.runtime.StateLog`."""

    def __init__(
        self,
        loop: SimLoop,
        chance: random.Random,
        record_format: RecordFormat,
        epoch: int,
        batches: Sequence[StoredBatch] = (),
        safe_end: int = 0,
    ) -> None:
        self.epoch = epoch
        self.deposed = False
        self.refuses = False
        """There are too few replicas in sync to take anything."""
        self.batches = list(batches)
        self.safe_end = safe_end
        self._loop = loop
        self._chance = chance
        self._format = record_format
        self._waits: list[tuple[int, Callable[[BrokerError | None], None]]] = []
        self._replicate()

    @property
    def end_offset(self) -> int:
        return len(self.batches)

    def append(
        self,
        records: Sequence[StoredRecord],
        now_ms: int,  # noqa: ARG002 - nobody asks when it was
        transaction: Transaction | None = None,
    ) -> int:
        assert transaction is None, "nothing is stored here inside a client's transaction"
        if self.refuses:
            raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas are in sync")
        self.batches.append(tuple(self._format.encode(record) for record in records))
        self._replicate()
        return len(self.batches) - 1

    def marked(self, transaction: Transaction, *, committed: bool) -> int:  # noqa: ARG002 - never called
        raise AssertionError("no client's transaction ends here")

    def when_safe(self, offset: int, then: Callable[[BrokerError | None], None]) -> None:
        if offset < self.safe_end:
            then(None)
        else:
            self._waits.append((offset, then))

    async def read(self) -> AsyncIterator[Sequence[LoadedBatch]]:
        loaded = []
        for batch in self.batches:
            decoded = [self._format.decode(key, value) for key, value in batch]
            loaded.append(LoadedBatch([each for each in decoded if each is not None]))
        yield loaded

    def give_up_waiting(self) -> None:
        """Replicas fell out of sync: whoever waits is told that it may not last, though it stays in the log."""
        waits, self._waits = self._waits, []
        for _offset, then in waits:
            then(BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few replicas are in sync"))

    def succeeded_by(self, loop: SimLoop) -> Reign:
        """Another broker leads. This one may not know yet."""
        self.deposed = True
        kept = self._chance.randint(self.safe_end, self.end_offset)
        return Reign(loop, self._chance, self._format, self.epoch + 1, self.batches[:kept], self.safe_end)

    def _replicate(self) -> None:
        slow = self._chance.random() < 0.1
        delay_s = self._chance.uniform(0.0, 0.5 if slow else 0.004)
        self._loop.call_later(delay_s, self._replicated, len(self.batches))

    def _replicated(self, end: int) -> None:
        if self.deposed or end <= self.safe_end:
            return
        self.safe_end = end
        safe = [then for offset, then in self._waits if offset < end]
        self._waits = [each for each in self._waits if each[0] >= end]
        for then in safe:
            then(None)
