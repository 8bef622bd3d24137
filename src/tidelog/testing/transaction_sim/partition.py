"""One partition: its batches, what its leader knows of producers, and what readers of committed records may see.

The log is a list; what decides over it is real. What lies above the high watermark may be cut off when another broker
comes to lead, and is then taken in again from the start, as recovery does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tidelog.coordinators.groups.offsets import OffsetBook
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import CONTROL_BIT, MAGIC_V2, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from tidelog.storage import snapshots
from tidelog.storage.aborted_index import AbortedEntry, AbortedIndex
from tidelog.storage.producers import Producers
from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable

    from tidelog.coordinators.transactions.transaction import Identity
    from tidelog.records.control import Marker
    from tidelog.storage.verification import Guard
    from tidelog.testing.sim.timeline import SimLoop
    from tidelog.testing.transaction_sim.ledger import Sent
    from tidelog.types import TopicPartition

GROUP, TOPIC = "readers", "tides"
_BATCH_LENGTH = 100


class Batch(NamedTuple):
    header: BatchHeader
    sent: Sent | None
    marker: Marker | None


def header_of(identity: Identity, sequence: int, offset: int = 0, attributes: int = TRANSACTIONAL_BIT) -> BatchHeader:
    return BatchHeader(
        offset, _BATCH_LENGTH, 0, MAGIC_V2, 0, attributes, 0, 0, 0, identity.producer_id, identity.epoch, sequence, 1
    )


class SimPartition:
    def __init__(self, place: TopicPartition, leader: int, loop: SimLoop, chance: random.Random) -> None:
        self.place = place
        self.leader = leader
        self.holds_offsets = place.topic != TOPIC
        self.batches: list[Batch] = []
        self.high_watermark = 0
        self.on_stable: Callable[[], None] = lambda: None
        """Called whenever something has changed."""
        self._loop = loop
        self._chance = chance
        self._waits: list[tuple[int, asyncio.Future[None]]] = []
        self._reset(Producers())

    def _reset(self, producers: Producers) -> None:
        self.producers = producers
        self.aborted = AbortedIndex(cast("Any", None), "", 0)
        self.book = OffsetBook()

    @property
    def end_offset(self) -> int:
        return len(self.batches)

    @property
    def last_stable_offset(self) -> int:
        return min(self.producers.transactions.first_unstable_offset, self.high_watermark)

    def check_leader(self, broker: int) -> None:
        if broker != self.leader:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.place} is led by {self.leader}")

    # --- writing ---

    def append(self, header: BatchHeader, sent: Sent, guard: Guard | None, now_ms: int) -> int:
        seen = self.producers.check(header, guard)
        if seen is not None:
            return seen.last_offset
        self._take(Batch(header._replace(base_offset=self.end_offset), sent, None), now_ms)
        return self.end_offset - 1

    def append_marker(self, marker: Marker, identity: Identity, version: int, now_ms: int) -> int:
        self.producers.check_marker(marker, *identity, version)
        header = header_of(identity, NO_SEQUENCE, self.end_offset, TRANSACTIONAL_BIT | CONTROL_BIT)
        self._take(Batch(header, None, marker), now_ms)
        return self.end_offset - 1

    def _take(self, batch: Batch, now_ms: int) -> None:
        self.batches.append(batch)
        self._remember(batch, now_ms)
        self._replicate()
        self.on_stable()

    def _remember(self, batch: Batch, now_ms: int) -> None:
        """The same whether it was just appended or is read again."""
        header, sent, marker = batch
        completed = self.producers.record(header, header.base_offset, now_ms, marker)
        if completed is not None and completed.aborted:
            stable = self.producers.transactions.first_open_offset(otherwise=completed.last_offset + 1)
            self.aborted.append(AbortedEntry(*completed[:3], stable))
        if self.holds_offsets and sent is not None:
            key = OffsetCommitKey(group=GROUP, topic=TOPIC, partition=0)
            value = OffsetCommitValue(offset=sent.number, metadata="", commit_timestamp=now_ms)
            self.book.hold(header.producer_id, key, value)
        elif self.holds_offsets and marker is not None:
            self.book.end_transaction(header.producer_id, committed=marker.committed)

    # --- becoming safe ---

    def safe(self, offset: int) -> asyncio.Future[None]:
        """Done once the high watermark has passed `offset`; fails when another broker comes to lead before that."""
        future: asyncio.Future[None] = self._loop.create_future()
        if offset < self.high_watermark:
            future.set_result(None)
        else:
            self._waits.append((offset, future))
        return future

    def _replicate(self) -> None:
        slow = self._chance.random() < 0.1
        self._loop.call_later(
            self._chance.uniform(0.0, 0.5 if slow else 0.004), self._replicated, self._loop, self.end_offset
        )

    def _replicated(self, loop: SimLoop, end: int) -> None:
        if loop is not self._loop or not self.high_watermark < end <= self.end_offset:
            return
        self.high_watermark = end
        self.producers.transactions.settle(end)
        waits, self._waits = self._waits, []
        for offset, future in waits:
            if offset >= end:
                self._waits.append((offset, future))
            elif not future.done():
                future.set_result(None)
        self.on_stable()

    # --- leaders ---

    def lead_by(self, broker: int, loop: SimLoop, now_ms: int) -> int:
        """Another broker leads, or the same one after a restart. How many batches were cut off."""
        kept = self._chance.randint(self.high_watermark, self.end_offset)
        cut = self.end_offset - kept
        del self.batches[kept:]
        self.leader, self._loop = broker, loop
        self._take_in_again(now_ms)
        waits, self._waits = self._waits, []
        for _offset, future in waits:
            if not future.done():
                future.set_exception(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.place} is led elsewhere"))
                future.exception()  # nobody may be waiting any more
        self._replicate()
        self.on_stable()
        return cut

    def _take_in_again(self, now_ms: int) -> None:
        """From the first batch on, with a snapshot in between as a restart would have it."""
        self._reset(Producers())
        snapshot_at = self._chance.randint(0, self.high_watermark)
        for batch in self.batches:
            if batch.header.base_offset == snapshot_at:
                self.producers.transactions.settle(self.high_watermark)
                self.producers = snapshots.decode(snapshots.encode(self.producers))
            self._remember(batch, now_ms)
        self.producers.transactions.settle(self.high_watermark)
