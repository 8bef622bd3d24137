"""Leave to begin a transaction in a partition, which only the transaction's coordinator can give (KIP-890). PURE.

Without it, a batch that was long on its way could begin a transaction that nobody will ever end, or join the next one
of its producer. So a partition asks the coordinator before it takes the first batch of a transaction; and since the
answer itself can be late, it first takes a guard, which a marker or a newer epoch voids. One guard is shared by all
requests that wait for the same answer.
"""

from __future__ import annotations


class Guard:
    """Compared by identity: a later one for the same producer is another."""

    __slots__ = ("epoch", "lowest_sequence", "taken_ms")

    def __init__(self, epoch: int, lowest_sequence: int, taken_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """Of those that were announced: no later one may be the transaction's first, or the others would be lost."""
        self.taken_ms = taken_ms


TRUSTED = Guard(-1, -1, -1)
"""Stands for verification where none is wanted (`transaction.partition.verification.enable=false`)."""


class Guards:
    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def take(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Guard:
        guard = self._by_producer.get(producer_id)
        if guard is None or epoch > guard.epoch:
            guard = self._by_producer[producer_id] = Guard(epoch, sequence, now_ms)
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def stands(self, guard: Guard | None, producer_id: int, epoch: int) -> bool:
        if guard is TRUSTED:
            return True
        return guard is not None and guard is self._by_producer.get(producer_id) and guard.epoch == epoch

    def lowest_sequence(self, producer_id: int, epoch: int) -> int | None:
        """The lowest announced, if anybody waits for an answer about this epoch."""
        guard = self._by_producer.get(producer_id)
        return guard.lowest_sequence if guard is not None and guard.epoch == epoch else None

    def void(self, producer_id: int) -> None:
        self._by_producer.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those of producers that never came back with a batch."""
        old = [each for each, guard in self._by_producer.items() if now_ms - guard.taken_ms >= expiration_ms]
        for producer_id in old:
            del self._by_producer[producer_id]
