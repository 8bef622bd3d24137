"""How a transaction ends: its holder commits or aborts it, or it is aborted over his head.

What is decided is stored before any marker is written, and is final. Since transaction.version 2 (KIP-890) each end
raises the epoch: the markers carry the higher one, so that nothing that comes late can join the next transaction. The
holder learns it with the answer; one who repeats his request is known by the epoch below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.states import TransactionState
from tidelog.coordinators.transactions.transaction import (
    BUMPS_EPOCHS,
    LAST_EPOCH_GIVEN,
    NO_EPOCH,
    NO_TIME_MS,
    NOBODY,
    Identity,
    Transaction,
)
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

_S = TransactionState


def end(
    known: Transaction | None,
    claimed: Identity,
    version: int,
    new_id: Callable[[], int | None],
    now_ms: int,
    *,
    committed: bool,
) -> Transaction | ErrorCode:
    """What is to be stored. NONE if it was ended like this before."""
    if known is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if version >= BUMPS_EPOCHS:
        return _end_bumping(known, claimed, version, new_id, now_ms, committed=committed)
    if claimed.producer_id != known.holder.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if claimed.epoch != known.holder.epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state is _S.ONGOING:
        return _prepared(known, version, new_id, now_ms, committed=committed)
    if known.state is (_S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is (_S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT):
        return ErrorCode.NONE
    return ErrorCode.INVALID_TXN_STATE


def _end_bumping(
    known: Transaction,
    claimed: Identity,
    version: int,
    new_id: Callable[[], int | None],
    now_ms: int,
    *,
    committed: bool,
) -> Transaction | ErrorCode:
    if known.state.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # before all else: the holder may already go by his next id
    repeated = known.state.complete and _is_repeated(known, claimed)
    if claimed.producer_id != known.holder.producer_id and not repeated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if claimed.epoch != known.holder.epoch and not repeated:
        return ErrorCode.PRODUCER_FENCED
    if known.state is _S.ONGOING:
        return _prepared(known, version, new_id, now_ms, committed=committed)
    if repeated:
        same = committed == (known.state is _S.COMPLETE_COMMIT)
        return ErrorCode.NONE if same else ErrorCode.INVALID_TXN_STATE
    if committed:
        return ErrorCode.INVALID_TXN_STATE
    # He cannot know whether anything of his arrived. Aborting nothing raises the epoch too, against what comes late.
    return _prepared(known, version, new_id, now_ms, committed=False)


def _is_repeated(known: Transaction, claimed: Identity) -> bool:
    held = known.identity
    if known.version < BUMPS_EPOCHS:
        return False  # the epoch below was somebody else's
    if claimed.producer_id == held.producer_id:
        return claimed.epoch + 1 == held.epoch <= LAST_EPOCH_GIVEN
    return claimed == Identity(known.previous_id, LAST_EPOCH_GIVEN) and held.epoch == 0


def _prepared(
    known: Transaction, version: int, new_id: Callable[[], int | None], now_ms: int, *, committed: bool
) -> Transaction | ErrorCode:
    ended = replace(
        known,
        state=_S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT,
        updated_ms=now_ms,
        version=version,
        started_ms=now_ms if known.started_ms == NO_TIME_MS else known.started_ms,
    )
    if version >= BUMPS_EPOCHS:
        successor = _bumped(known.holder, new_id)
        if successor is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        ended = _succeeded(ended, successor, last_epoch=known.holder.epoch)
    elif known.successor != NOBODY:
        ended = _succeeded(ended, known.successor, last_epoch=NO_EPOCH)
    return _without_markers(ended, now_ms)


def fenced(known: Transaction, new_id: Callable[[], int | None], now_ms: int) -> Transaction | ErrorCode:
    """The open transaction, aborted with an epoch above its holder's."""
    assert known.state is _S.ONGOING
    ended = replace(known, state=_S.PREPARE_ABORT, updated_ms=now_ms)
    if known.version < BUMPS_EPOCHS and known.successor == NOBODY:
        # Whoever is next gets another id if this was the last epoch: no producer is ever told this one.
        bumped = Identity(known.identity.producer_id, known.identity.epoch + 1)
        return _without_markers(replace(ended, identity=bumped, last_epoch=NO_EPOCH), now_ms)
    successor = _bumped(known.holder, new_id)
    if successor is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _without_markers(_succeeded(ended, successor, last_epoch=NO_EPOCH), now_ms)


def _bumped(held: Identity, new_id: Callable[[], int | None]) -> Identity | None:
    if not held.exhausted:
        return Identity(held.producer_id, held.epoch + 1)
    producer_id = new_id()
    return None if producer_id is None else Identity(producer_id, 0)


def _succeeded(ended: Transaction, successor: Identity, *, last_epoch: int) -> Transaction:
    """Markers go out one epoch above that of the transaction, whatever its holder has by then."""
    marker = Identity(ended.identity.producer_id, ended.identity.epoch + 1)
    return replace(
        ended, identity=marker, successor=NOBODY if successor == marker else successor, last_epoch=last_epoch
    )


def _without_markers(ended: Transaction, now_ms: int) -> Transaction:
    """Where nothing is in the transaction, there is nothing to wait for."""
    return ended if ended.partitions else ended.completed(now_ms)
