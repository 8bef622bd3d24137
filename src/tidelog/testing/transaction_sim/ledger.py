"""What producers did and were told, and what readers of committed records saw: each held against the other at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.transaction import LAST_EPOCH_GIVEN, Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.types import TopicPartition

NEVER = 2**62
FIRST_NEW_ID = 1000
"""Lower ids belong to transactional ids that were there before the run."""


class Violation(Exception):  # noqa: N818 - named for what was found
    """A promise was broken."""


@dataclass(eq=False, slots=True)
class Life:
    """One life of a producer: from its start to its end or crash."""

    name: str
    transactional_id: str
    given_at: int = NEVER
    """The step at which it was told its producer id."""
    rank: int = -1
    """How many ids were given out before its own, by coordinators' order: answers may overtake each other."""
    successor_rank: int = NEVER
    superseded_at: int = NEVER
    """The step at which a later one was told its own: from then on, this one must not get anything done."""


@dataclass(eq=False, slots=True)
class Txn:
    number: int
    life: Life
    identity: Identity
    sent: list[Sent] = field(default_factory=list)
    commit_asked_at: int = NEVER
    told: bool | None = None
    """That it is committed, or aborted."""
    must_commit: bool = False
    """Somebody else has decided so, and the coordinator may not decide otherwise."""

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.life.name} ({self.identity.producer_id}/{self.identity.epoch})"


@dataclass(eq=False, slots=True)
class Sent:
    txn: Txn
    place: TopicPartition
    number: int
    """Rising for each producer's life and partition."""
    at: int
    seen: int = 0

    def __str__(self) -> str:
        return f"{self.txn}, batch {self.number} to {self.place}"


class Ledger:
    def __init__(self, step: Callable[[], int]) -> None:
        self.step = step
        self.txns: list[Txn] = []
        self.lives: list[Life] = []
        self.violation: Violation | None = None
        """The first that was found, in whosever hands."""
        self._given: dict[str, Identity] = {}
        self._ranks: dict[tuple[str, Identity], int] = {}
        self._ids_given = 0
        self._batches = 0
        self._owner: dict[int, str] = {}
        self._last_seen: dict[tuple[Life, TopicPartition], int] = {}

    def _broken(self, promise: str) -> Violation:
        self.violation = self.violation or Violation(promise)
        return self.violation

    # --- what producers do and are told ---

    def born(self, transactional_id: str) -> Life:
        life = Life(f"{transactional_id}#{len(self.lives) + 1}", transactional_id)
        self.lives.append(life)
        return life

    def begin(self, life: Life, identity: Identity) -> Txn:
        txn = Txn(len(self.txns) + 1, life, identity)
        self.txns.append(txn)
        return txn

    def send(self, txn: Txn, place: TopicPartition) -> Sent:
        self._batches += 1
        sent = Sent(txn, place, self._batches, self.step())
        txn.sent.append(sent)
        return sent

    def ask_commit(self, txn: Txn) -> None:
        txn.commit_asked_at = min(txn.commit_asked_at, self.step())

    def was_told(self, txn: Txn, *, committed: bool, by: Life) -> None:
        if txn.told not in {None, committed}:
            raise self._broken(f"{txn} has ended both ways")
        txn.told = committed
        if committed and by is txn.life and txn.commit_asked_at > txn.life.superseded_at:
            raise self._broken(f"{txn} was committed though another had taken over before that was asked for")
        if not committed:
            for sent in txn.sent:
                if sent.seen:
                    raise self._broken(f"{sent} was seen, and its producer told that it is aborted")

    def took_over(self, life: Life, identity: Identity) -> None:
        """It was told who it is: all who were given the transactional id before it are to get nothing done any more."""
        rank = self._ranks[life.transactional_id, identity]
        if rank > life.successor_rank:
            raise self._broken(f"{life.name} goes on as {identity}, though another had taken over")
        for other in self.lives:
            if other is not life and other.transactional_id == life.transactional_id and other.rank >= 0:
                older, newer_rank = (other, rank) if other.rank < rank else (life, other.rank)
                older.superseded_at = min(older.superseded_at, self.step())
                older.successor_rank = min(older.successor_rank, newer_rank)
        life.given_at = min(life.given_at, self.step())
        life.rank = max(life.rank, rank)

    def was_fenced(self, life: Life, reason: str) -> None:
        """Somebody in time, who did nothing that could come back to it, was told to stop."""
        if all(other is life or other.transactional_id != life.transactional_id for other in self.lives):
            raise self._broken(f"{life.name} was fenced by nobody: {reason}")

    # --- what coordinators give away ---

    def identity_given(self, transactional_id: str, claimed: Identity, given: Identity) -> None:
        """In the order in which coordinators say it."""
        before = self._given.get(transactional_id)
        self._given[transactional_id] = given
        self._ids_given += 1
        self._ranks[transactional_id, given] = self._ids_given
        owner = self._owner.setdefault(given.producer_id, transactional_id)
        if owner != transactional_id:
            raise self._broken(
                f"producer id {given.producer_id} belongs to {owner}, and is given to {transactional_id}"
            )
        if not 0 <= given.epoch <= LAST_EPOCH_GIVEN:
            raise self._broken(f"epoch {given.epoch} is given to {transactional_id}")
        if before is None or before.producer_id != given.producer_id:
            if before is not None and given.producer_id < max(before.producer_id, FIRST_NEW_ID):
                raise self._broken(f"{transactional_id} goes back from {before} to {given}")
            return
        repeated = claimed.producer_id >= 0 and given.epoch == before.epoch
        if given.epoch <= before.epoch and not repeated:
            raise self._broken(f"the epoch of {transactional_id} goes from {before} to {given}")

    # --- what readers see ---

    def saw(self, sent: Sent, *, once: bool) -> None:
        txn, life = sent.txn, sent.txn.life
        sent.seen += 1
        if txn.commit_asked_at == NEVER:
            raise self._broken(f"{sent} was seen, and nobody has asked to commit it")
        if txn.told is False:
            raise self._broken(f"{sent} was seen, though aborted")
        # What is prepared stays open for the next life, which goes by what was decided elsewhere.
        if sent.at > life.superseded_at and not txn.must_commit:
            raise self._broken(f"{sent} was seen, though sent after another had taken over")
        if once:
            if sent.seen > 1:
                raise self._broken(f"{sent} was seen twice")
            last = self._last_seen.get((life, sent.place), 0)
            if sent.number < last:
                raise self._broken(f"{sent} was seen after batch {last}")
            self._last_seen[life, sent.place] = sent.number

    def settle(self) -> None:
        """All is at rest: every transaction is there as a whole or not at all."""
        for txn in self.txns:
            seen = [sent for sent in txn.sent if sent.seen]
            if seen and len(seen) < len(txn.sent):
                missing = [str(sent.place) for sent in txn.sent if not sent.seen]
                raise self._broken(f"{txn} is torn: {seen[0].place} has it, {missing[0]} does not")
            if txn.sent and not seen and (txn.told or txn.must_commit):
                raise self._broken(f"{txn} is lost: {'told' if txn.told else 'decided'} to be committed, and not there")
