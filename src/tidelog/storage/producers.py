"""What a partition remembers of idempotent producers: the last five batches of each, the epoch, the open transaction.

`check` and `check_marker` decide, `record` remembers; none touches a file or a clock. A producer repeats a batch when
its answer got lost, with up to five in flight: so five batches are kept, and a repeat of one of them is answered as it
was the first time (KIP-98). The first transactional batch opens a transaction, and only a marker ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import CONTROL_BIT, MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from tidelog.storage.transactions import NO_OFFSET, CompletedTransaction, Transactions
from tidelog.storage.verification import Guard, Guards

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.records.control import Marker

WINDOW = 5
DAY_MS = 24 * 60 * 60 * 1000
EPOCH_PER_TRANSACTION = 2
"""From this transaction.version on, a marker carries the epoch after that of the transaction it ends (KIP-890)."""


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
        """Of the coordinator that wrote the last marker."""
        self.transaction_first_offset = NO_OFFSET
        """Of the open transaction."""

    @property
    def last_sequence(self) -> int:
        return self.window[-1].last_sequence if self.window else NO_SEQUENCE


class Producers:
    __slots__ = ("_by_id", "_guards", "transactions")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        self._guards = Guards()
        self.transactions = Transactions()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._by_id.items())

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    # -- deciding -----------------------------------------------------------------------------------------------

    def verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Guard | None:
        """Taken before the coordinator is asked whether a transaction is open here, and shown to `check` afterwards.

        None if it need not be asked, since the transaction has begun here already.
        """
        if self._is_open(producer_id, epoch):
            return None
        return self._guards.take(producer_id, epoch, sequence, now_ms)

    def check(self, header: BatchHeader, guard: Guard | None = None) -> SeenBatch | None:
        """None if the batch is the next one, what was stored if it is a repeat; refused otherwise.

        An unknown producer may start anywhere: its state may have expired, and refusing would stop it for good. Batches
        without a sequence come from a coordinator, which writes on behalf of the producer.
        """
        producer = self._by_id.get(header.producer_id)
        if producer is not None:
            first = header.base_sequence
            if header.producer_epoch == producer.epoch:
                last = header.last_sequence
                for seen in producer.window:
                    if seen.first_sequence == first and seen.last_sequence == last:
                        return seen
                expected = (producer.last_sequence + 1) & MAX_SEQUENCE
                if first != expected and first >= 0:
                    raise BrokerError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"producer {header.producer_id} (epoch {producer.epoch}) sent sequence {first}, "
                        f"expected {expected}",
                    )
            elif header.producer_epoch < producer.epoch:
                raise _fenced(header.producer_id, header.producer_epoch, producer.epoch)
            elif first > 0:
                raise BrokerError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence {first}, "
                    "expected 0",
                )
        if header.attributes & TRANSACTIONAL_BIT:
            self._check_transactional(header, guard)
        elif producer is not None and producer.transaction_first_offset != NO_OFFSET:
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction here: end it before writing outside of one",
            )
        return None

    def _check_transactional(self, header: BatchHeader, guard: Guard | None) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        if self._is_open(producer_id, epoch):
            return
        if not self._guards.stands(guard, producer_id, epoch):
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} (epoch {epoch}) has no open transaction here that its coordinator vouches for",
            )
        lowest = self._guards.lowest_sequence(producer_id, epoch)
        if lowest is not None and header.base_sequence > lowest:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins a transaction with sequence {header.base_sequence}, but has announced "
                f"{lowest}: send that first",
            )

    def check_marker(self, marker: Marker, producer_id: int, epoch: int, transaction_version: int) -> None:
        """Refuses a marker that comes too late. One that was written before may come again and changes nothing.

        One for a producer that is not known is taken: the coordinator knows better, and has to come to an end.
        """
        producer = self._by_id.get(producer_id)
        if producer is None:
            return
        late = epoch < producer.epoch
        if transaction_version >= EPOCH_PER_TRANSACTION and producer.transaction_first_offset != NO_OFFSET:
            late = epoch <= producer.epoch  # else a repeat would end the transaction after the one it was meant for
        if late:
            raise _fenced(producer_id, epoch, producer.epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {producer.coordinator_epoch} has ended transactions of producer {producer_id} "
                f"here: epoch {marker.coordinator_epoch} may not any more",
            )

    def _is_open(self, producer_id: int, epoch: int) -> bool:
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.transaction_first_offset != NO_OFFSET and producer.epoch == epoch

    # -- remembering --------------------------------------------------------------------------------------------

    def record(
        self, header: BatchHeader, base_offset: int, timestamp_ms: int, marker: Marker | None = None
    ) -> CompletedTransaction | None:
        """Remember an appended batch, and what its `marker`, if it holds one, has ended.

        Unchecked: a follower and recovery take what the leader accepted.
        """
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._by_id[header.producer_id] = Producer(header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.window = ()
        producer.last_seen_ms = timestamp_ms
        if header.base_sequence >= 0:
            last_offset = base_offset + header.last_offset_delta
            seen = SeenBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp_ms)
            producer.window = (*producer.window[1 - WINDOW :], seen)
        if header.attributes & TRANSACTIONAL_BIT:
            self._guards.void(header.producer_id)
            if marker is not None:
                return self._end(header.producer_id, producer, base_offset, marker)
            if producer.transaction_first_offset == NO_OFFSET and not header.attributes & CONTROL_BIT:
                producer.transaction_first_offset = base_offset
                self.transactions.begin(base_offset)
        return None

    def _end(self, producer_id: int, producer: Producer, offset: int, marker: Marker) -> CompletedTransaction | None:
        """None if there was nothing to end: then nothing was held back either."""
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset = producer.transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        producer.transaction_first_offset = NO_OFFSET
        completed = CompletedTransaction(producer_id, first_offset, offset, not marker.committed)
        self.transactions.end(completed)
        return completed

    def restore(self, producer_id: int, producer: Producer) -> None:
        assert producer_id not in self._by_id, "a producer is restored once"
        self._by_id[producer_id] = producer
        if producer.transaction_first_offset != NO_OFFSET:
            self.transactions.begin(producer.transaction_first_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget who has been silent too long, unless a transaction is open. Returns how many."""
        gone = [each for each, producer in self._by_id.items() if is_expired(producer, now_ms, expiration_ms)]
        for producer_id in gone:
            del self._by_id[producer_id]
        self._guards.expire(now_ms, expiration_ms)
        return len(gone)


def is_expired(producer: Producer, now_ms: int, expiration_ms: int) -> bool:
    return producer.transaction_first_offset == NO_OFFSET and now_ms - producer.last_seen_ms >= expiration_ms


def _fenced(producer_id: int, epoch: int, current_epoch: int) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} sent epoch {epoch}, a later instance has {current_epoch}: stop this one",
    )
