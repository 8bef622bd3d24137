"""Where a producer's transaction stands and what it may do next. Decides, does no I/O.

    NEW -> READY -> OPEN -> COMMITTING -> READY        OPEN -> FAILED -> ABORTING -> READY
                    OPEN -> PREPARED -> COMMITTING or ABORTING, or NEW when somebody else ends it
    anything -> STOPPED, where it stays

A commit that was not answered leaves COMMITTING: it may have happened, so that it can only be asked for again.
Partitions can be lent to writers in other processes: nobody else writes to them until they come back.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import InvalidState, ProducerFenced, ProducerStopped, TransactionFailed
from tidelog.client.transactions.handles import PreparedTransaction, TransactionHandle, TransactionPart
from tidelog.client.transactions.reactions import Reaction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.accumulator import ProducerIdentity
    from tidelog.client.errors import ClientError
    from tidelog.errors import BrokerError
    from tidelog.types import TopicPartition

JOINS_BY_WRITING: Final = 2
"""The transaction.version since which partitions need not be added first, and each end raises the epoch (KIP-890)."""


class Stage(Enum):
    NEW = "has not asked for its identity yet"
    READY = "has no transaction open"
    OPEN = "is in a transaction"
    FAILED = "is in a transaction that can only be aborted"
    PREPARED = "has prepared its transaction, which can only be committed or aborted"
    COMMITTING = "is committing"
    ABORTING = "is aborting"
    STOPPED = "cannot go on"


NEXT: Final[dict[Stage, frozenset[Stage]]] = {
    Stage.NEW: frozenset({Stage.READY, Stage.PREPARED, Stage.OPEN}),
    Stage.READY: frozenset({Stage.OPEN, Stage.NEW}),
    Stage.OPEN: frozenset({Stage.FAILED, Stage.PREPARED, Stage.COMMITTING, Stage.ABORTING}),
    Stage.FAILED: frozenset({Stage.ABORTING}),
    Stage.PREPARED: frozenset({Stage.COMMITTING, Stage.ABORTING, Stage.NEW}),
    Stage.COMMITTING: frozenset({Stage.READY, Stage.FAILED}),
    Stage.ABORTING: frozenset({Stage.READY}),
    Stage.STOPPED: frozenset(),
}
"""Beside these, every stage may go to STOPPED."""


class Book:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.stage = Stage.NEW
        self.identity: ProducerIdentity | None = None
        self.version = 0
        """The transaction.version by whose rules the transaction goes."""
        self.failure: ClientError | None = None
        """Why it is FAILED or STOPPED."""
        self.written = False
        """There may be something in the transaction: the coordinator has to be told of its end."""
        self.needs_new_epoch = False
        """What became of some records is unknown, so that the next sequence is too."""
        self.in_doubt = False
        """A request to commit was not answered: it may have been carried out."""
        self.joined = False
        """This is another process's transaction: it begins and ends there."""
        self.prepared: PreparedTransaction | None = None
        self._added: set[TopicPartition] = set()
        self._lent: set[TopicPartition] = set()
        self._own: frozenset[TopicPartition] | None = None

    # --- its life ---

    def initialised(self, identity: ProducerIdentity, version: int) -> None:
        self._go(Stage.READY)
        self._renew(identity)
        self.version = version

    def found_prepared(self, identity: ProducerIdentity, prepared: PreparedTransaction) -> None:
        """An earlier life of this producer has prepared a transaction: it is ended under the new identity."""
        self._go(Stage.PREPARED)
        self._renew(identity)
        self.version, self.prepared, self.written = prepared.transaction_version, prepared, True

    def join(self, handle: TransactionHandle) -> None:
        self._go(Stage.OPEN)
        self._renew(handle.identity)
        self.version, self.joined = handle.transaction_version, True
        self._own = frozenset(partition for partition, _ in handle.partitions)
        self._added.update(self._own)  # whoever lends them has done that

    def begin(self, version: int) -> None:
        """`version` is the transaction.version of the cluster as it is now."""
        self._check_running()
        if self.joined:
            raise InvalidState("this producer has a part in another's transaction, and cannot begin one of its own")
        if self.stage is Stage.COMMITTING:
            raise InvalidState("how the last transaction ended is not known: call commit() again to find out")
        if self.stage is not Stage.READY:
            raise InvalidState(f"the producer {self.stage.value}: call commit() or abort() before begin()")
        self.version = version
        self._go(Stage.OPEN)

    def prepare(self) -> PreparedTransaction:
        self._check_owner("prepare")
        self.check_committable()
        assert self.identity is not None
        self._go(Stage.PREPARED)
        self.prepared = PreparedTransaction(
            self.transactional_id, self.identity.producer_id, self.identity.epoch, self.version, self.written
        )
        return self.prepared

    def begin_commit(self) -> None:
        self._check_owner("commit")
        if self.stage is Stage.COMMITTING:
            return
        if self.stage is not Stage.PREPARED:
            self.check_committable()
        self._go(Stage.COMMITTING)

    def begin_abort(self) -> None:
        self._check_owner("abort")
        self._check_running()
        if self.stage is Stage.ABORTING:
            return
        if self.stage is Stage.COMMITTING:
            raise InvalidState(
                "the commit was asked for and may have happened, so the transaction cannot be aborted any more: "
                "call commit() again to find out"
            )
        if self.stage not in {Stage.OPEN, Stage.FAILED, Stage.PREPARED}:
            raise InvalidState(f"the producer {self.stage.value}: there is nothing to abort")
        if self._lent:
            # A writer that nobody heard of again may still be at it: a higher epoch shuts it out.
            self.written = True
            self.needs_new_epoch = self.version < JOINS_BY_WRITING
        self._go(Stage.ABORTING)

    def ended(self, identity: ProducerIdentity | None = None) -> None:
        """The outcome is decided; `identity` is what the coordinator gave for what comes next, if it did."""
        self._go(Stage.READY)
        if identity is not None:
            self._renew(identity)
        self.written, self.in_doubt, self.prepared, self.failure = False, False, None, None
        self._added.clear()
        self._lent.clear()

    def leave_to_others(self) -> None:
        """What is prepared is ended elsewhere. The producer begins anew, and asks for its identity again."""
        self._check_owner("begin anew")
        self._check_running()
        if self.stage not in {Stage.PREPARED, Stage.READY}:
            raise InvalidState(f"the producer {self.stage.value}: it can begin anew after prepare()")
        self._go(Stage.NEW)
        self.written, self.prepared = False, None
        self._added.clear()

    def renewed(self, identity: ProducerIdentity) -> None:
        assert self.stage is Stage.ABORTING
        self._renew(identity)

    def fail(self, reaction: Reaction, error: ClientError | BrokerError) -> ClientError:
        """Notes what went wrong, and gives what the application is to be told."""
        name = self.transactional_id
        unknown = "; whether the last commit happened is not known" if self.in_doubt else ""
        told: ClientError
        if reaction is Reaction.FENCED:
            told = ProducerFenced(
                f"another producer has taken over the transactional id {name}, or the transaction timed out: close "
                f"this producer. What it did not commit is aborted{unknown} ({error})"
            )
        elif reaction is Reaction.FATAL:
            told = ProducerStopped(f"the producer {name} cannot go on, and is to be closed{unknown} ({error})")
        else:
            told = TransactionFailed(
                f"the transaction of {name} cannot be committed: abort it, and do its work again ({error})"
            )
        told.__cause__ = error
        if reaction in {Reaction.FENCED, Reaction.FATAL}:
            self._stop(told)
        elif self.stage in {Stage.OPEN, Stage.COMMITTING}:
            self._go(Stage.FAILED)
            self.failure = told
        return told

    # --- what it may do ---

    def check_may_write(self, partition: TopicPartition) -> None:
        if self.stage is not Stage.OPEN:
            self._check_running()
            if self.failure is not None and self.stage is Stage.FAILED:
                raise TransactionFailed(str(self.failure)) from self.failure
            raise InvalidState(f"the producer {self.stage.value}: records can be sent after begin()")
        if partition in self._lent:
            raise InvalidState(f"{partition} is lent to another process until its part is taken back")
        if self._own is not None and partition not in self._own:
            raise InvalidState(f"{partition} is not among those that the transaction's owner has lent to this producer")

    def check_committable(self) -> None:
        self._check_running()
        if self.stage is Stage.FAILED:
            raise TransactionFailed(str(self.failure)) from self.failure
        if self.stage is not Stage.OPEN:
            raise InvalidState(f"the producer {self.stage.value}: begin() a transaction first")
        if self._lent:
            raise InvalidState(
                f"{len(self._lent)} partitions are lent to other processes: take every part back, "
                "or abort if a writer is gone"
            )

    @property
    def open(self) -> bool:
        return self.stage in {Stage.OPEN, Stage.FAILED}

    @property
    def taking_records(self) -> bool:
        """Records may go out: what is still waiting otherwise will never be part of a transaction that counts."""
        return self.stage is Stage.OPEN

    # --- partitions ---

    def to_add(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that the coordinator must hear of before they can be written to."""
        return set() if self.version >= JOINS_BY_WRITING else set(partitions) - self._added

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        self._added.update(partitions)
        self.written = True

    def check_may_lend(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_owner("lend partitions")
        if self.stage is not Stage.OPEN:
            self.check_committable()
        for partition in partitions:
            self.check_may_write(partition)

    def lend(self, partitions: Iterable[tuple[TopicPartition, int]]) -> TransactionHandle:
        """Of partitions that `check_may_lend` has nothing against."""
        assert self.identity is not None
        lent = tuple(sorted(partitions))
        self._lent.update(partition for partition, _ in lent)
        return TransactionHandle(
            self.transactional_id, self.identity.producer_id, self.identity.epoch, self.version, lent
        )

    def take_back(self, part: TransactionPart) -> None:
        self._check_running()
        if self.stage is not Stage.OPEN or self.identity != part.identity:
            raise InvalidState("the part is of another transaction than the one that is open")
        strange = [str(partition) for partition, _ in part.partitions if partition not in self._lent]
        if strange:
            raise InvalidState(f"the part has partitions that are not lent: {', '.join(strange)}")
        self._lent.difference_update(partition for partition, _ in part.partitions)
        self.written = self.written or part.written

    # ---

    def _check_owner(self, what: str) -> None:
        if self.joined:
            raise InvalidState(f"only the process that began the transaction can {what}; call leave() here")

    def _check_running(self) -> None:
        if self.stage is Stage.STOPPED:
            assert self.failure is not None
            raise type(self.failure)(str(self.failure)) from self.failure

    def _renew(self, identity: ProducerIdentity) -> None:
        self.identity, self.needs_new_epoch = identity, False

    def _stop(self, failure: ClientError) -> None:
        if self.stage is not Stage.STOPPED:
            self.stage, self.failure = Stage.STOPPED, failure

    def _go(self, stage: Stage) -> None:
        assert stage in NEXT[self.stage], f"from {self.stage} to {stage}"
        self.stage = stage
