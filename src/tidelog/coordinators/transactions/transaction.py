"""What is known of one transactional id: who holds it, and the transaction he has open. A value: changes make another.

A producer is known by an id and an epoch. Whoever takes a transactional id over gets a higher epoch, and everybody with
a lower one is fenced. Epochs end at 32767, which no producer ever gets: it is left for fencing the last of them. Then
the transactional id goes on with another producer id.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.transactions.states import TransactionState
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicPartition
from tidelog.wire.stored.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_ID = -1
NO_EPOCH = -1
NO_TIME_MS = -1

EPOCH_MAX = 2**15 - 1
LAST_EPOCH_GIVEN = EPOCH_MAX - 1

FOREVER_MS = 2**31 - 1
"""The timeout of whoever takes part in two-phase commits: somebody else decides when his transactions end (KIP-939)."""

BUMPS_EPOCHS = 2
"""The transaction.version since which every end of a transaction raises the epoch (KIP-890)."""

_STATES = frozenset(TransactionState)

VALUE_VERSION = 1
_FIXED_BYTES_MAX = 200
"""More than all fields of a record together, but for names and partitions."""


class Identity(NamedTuple):
    producer_id: int
    epoch: int

    @property
    def exhausted(self) -> bool:
        """There is no higher epoch that could be given out."""
        return self.epoch >= LAST_EPOCH_GIVEN


NOBODY = Identity(NO_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    identity: Identity
    """With which the open transaction is written, and its markers will be; without one, what the holder has."""
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME_MS
    updated_ms: int = 0
    version: int = 0
    """The transaction.version that the holder speaks."""
    successor: Identity = NOBODY
    """What the holder has instead, or will have once all markers are written, if not `identity`: his epochs are used
    up, or he came back to a transaction that he had prepared."""
    previous_id: int = NO_ID
    """The producer id before this one, for a holder who repeats what used up its epochs."""
    last_epoch: int = NO_EPOCH
    """The holder's epoch before he asked for a higher one, as long as he may repeat that (KIP-360)."""

    @property
    def holder(self) -> Identity:
        """By what the one who may go on is known."""
        return self.successor if self.successor != NOBODY else self.identity

    @property
    def resumed(self) -> bool:
        """The holder came back to a transaction that an earlier life of his had prepared: he can only end it."""
        return self.state is TransactionState.ONGOING and self.successor != NOBODY

    @property
    def times_out_at_ms(self) -> int | None:
        if self.state is not TransactionState.ONGOING or self.timeout_ms == FOREVER_MS:
            return None
        return self.started_ms + self.timeout_ms

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        assert self.state.prepared
        committed = self.state is TransactionState.PREPARE_COMMIT
        return replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            identity=self.holder,
            successor=NOBODY,
            previous_id=self.identity.producer_id
            if self.holder.producer_id != self.identity.producer_id
            else self.previous_id,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    # --- as it is stored ---

    def key(self) -> TransactionLogKey:
        return TransactionLogKey(transactional_id=self.transactional_id)

    def value(self) -> TransactionLogValue:
        return TransactionLogValue(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            # Null where there can be none, as Kafka has it.
            transaction_partitions=None if self.state is TransactionState.EMPTY else by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            previous_producer_id=self.previous_id,
            next_producer_id=self.successor.producer_id,
            client_transaction_version=self.version,
            next_producer_epoch=self.successor.epoch,
            last_producer_epoch=self.last_epoch,
        )

    def stored_bytes_at_most(self) -> int:
        topics = {place.topic for place in self.partitions}
        names = sum(len(topic.encode()) + 10 for topic in topics)
        return _FIXED_BYTES_MAX + 2 * len(self.transactional_id.encode()) + names + 4 * len(self.partitions)

    @classmethod
    def stored(cls, key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
        """Raises BrokerError if the record makes no sense."""
        if value.transaction_status not in _STATES:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"transactional id {key.transactional_id!r} is stored with the state {value.transaction_status}, which "
                "nobody knows: was it written by a newer release?",
            )
        successor = NOBODY
        if value.next_producer_id != NO_ID:
            # A writer that knows of no next epoch means the first.
            successor = Identity(value.next_producer_id, max(value.next_producer_epoch, 0))
        return cls(
            transactional_id=key.transactional_id,
            identity=Identity(value.producer_id, value.producer_epoch),
            state=TransactionState(value.transaction_status),
            timeout_ms=value.transaction_timeout_ms,
            partitions=frozenset(
                TopicPartition(topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            started_ms=value.transaction_start_timestamp_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            version=value.client_transaction_version,
            successor=successor,
            previous_id=value.previous_producer_id,
            last_epoch=value.last_producer_epoch,
        )


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    """In order, so that the same transaction is always stored as the same bytes."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()]
