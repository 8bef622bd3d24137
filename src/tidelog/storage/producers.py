"""What a partition remembers of idempotent producers: the last five batches of each, and the epoch.

`check` decides, `record` remembers; neither touches a file or a clock. A producer repeats a batch when its answer got
lost, with up to five in flight: so five batches are kept, and a repeat of one of them is answered as it was the first
time (KIP-98). The fields of transactions are carried along and not yet acted upon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import MAX_SEQUENCE, NO_SEQUENCE, BatchHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = 5
DAY_MS = 24 * 60 * 60 * 1000
NO_OFFSET = -1


class SeenBatch(NamedTuple):
    """`timestamp_ms` is when it was appended: expiry must not depend on the timestamps that a producer makes up."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Producer:
    __slots__ = ("coordinator_epoch", "epoch", "last_seen_ms", "transaction_first_offset", "window")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.window: tuple[SeenBatch, ...] = ()
        """Oldest first, at most WINDOW, all of the current epoch."""
        self.last_seen_ms = -1
        self.coordinator_epoch = -1
        self.transaction_first_offset = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.window[-1].last_sequence if self.window else NO_SEQUENCE


class Producers:
    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._by_id.items())

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    def check(self, header: BatchHeader) -> SeenBatch | None:
        """None if the batch is the next one, what was stored if it is a repeat; refused otherwise.

        An unknown producer may start anywhere: its state may have expired, and refusing would stop it for good.
        """
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return None
        first, last = header.base_sequence, header.last_sequence
        if header.producer_epoch == producer.epoch:
            for seen in producer.window:
                if seen.first_sequence == first and seen.last_sequence == last:
                    return seen
            if first == (producer.last_sequence + 1) & MAX_SEQUENCE:
                return None
            expected = (producer.last_sequence + 1) & MAX_SEQUENCE
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} (epoch {producer.epoch}) sent sequence {first}, expected {expected}",
            )
        if header.producer_epoch < producer.epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, a later instance has "
                f"{producer.epoch}: stop this one",
            )
        if first != 0:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence {first}, expected 0",
            )
        return None

    def record(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """Remember an appended batch. Unchecked: a follower and recovery take what the leader accepted."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.window = ()
        producer.last_seen_ms = timestamp_ms
        if header.base_sequence < 0:
            return  # a transaction marker: it has an epoch, but no sequence
        last_offset = base_offset + header.last_offset_delta
        seen = SeenBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp_ms)
        producer.window = (*producer.window[1 - WINDOW :], seen)

    def restore(self, producer_id: int, producer: Producer) -> None:
        self._by_id[producer_id] = producer

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget who has been silent too long, unless a transaction is open. Returns how many."""
        gone = [each for each, producer in self._by_id.items() if is_expired(producer, now_ms, expiration_ms)]
        for producer_id in gone:
            del self._by_id[producer_id]
        return len(gone)


def is_expired(producer: Producer, now_ms: int, expiration_ms: int) -> bool:
    return producer.transaction_first_offset == NO_OFFSET and now_ms - producer.last_seen_ms >= expiration_ms
