"""Giving a transactional id to a producer: he gets a higher epoch, or another producer id, which fences all others.

A transaction that his predecessor left open is aborted first, and he has to ask again. A producer that says who he was
(KIP-360) only goes on where he was, and is refused if somebody else came in between. One that takes part in two-phase
commits may ask to find what he had prepared (KIP-939).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.ending import fenced
from tidelog.coordinators.transactions.states import TransactionState
from tidelog.coordinators.transactions.transaction import (
    FOREVER_MS,
    NO_EPOCH,
    NO_ID,
    NO_TIME_MS,
    NOBODY,
    Identity,
    Transaction,
)
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinators.transactions.config import TransactionConfig
    from tidelog.wire.messages.init_producer_id import InitProducerIdRequest


def initialise(
    known: Transaction | None,
    request: InitProducerIdRequest,
    config: TransactionConfig,
    new_id: Callable[[], int | None],
    now_ms: int,
) -> Transaction | ErrorCode:
    """What is to be stored: a new holder, a transaction that is being aborted first, or one that its holder resumes."""
    code = _check(request, config)
    if code:
        return code
    assert request.transactional_id is not None
    timeout_ms = FOREVER_MS if request.enable2_pc else request.transaction_timeout_ms
    if known is None:
        producer_id = new_id()
        if producer_id is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        # Whoever says who he was held an id that has been forgotten since: nobody can be in his way.
        made = Transaction(request.transactional_id, Identity(producer_id, 0), timeout_ms=timeout_ms, updated_ms=now_ms)
        return made if made.stored_bytes_at_most() <= config.record_bytes_max else ErrorCode.INVALID_REQUEST
    claimed = Identity(request.producer_id, request.producer_epoch)
    if not _may_claim(claimed, known):
        return ErrorCode.PRODUCER_FENCED
    if known.state.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is TransactionState.ONGOING:
        if request.keep_prepared_txn:
            return _resumed(known, claimed, timeout_ms, new_id, now_ms)
        return fenced(known, new_id, now_ms)
    return _renewed(known, claimed, timeout_ms, new_id, now_ms)


def _check(request: InitProducerIdRequest, config: TransactionConfig) -> ErrorCode:
    if not request.transactional_id or (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if (request.enable2_pc or request.keep_prepared_txn) and not config.two_phase_commit_enable:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _may_claim(claimed: Identity, known: Transaction) -> bool:
    """Who says nothing may. Otherwise it must be the holder, or one whose last request used up the epochs."""
    return (
        claimed == NOBODY
        or claimed.producer_id == known.holder.producer_id
        or (claimed.producer_id == known.previous_id and claimed.exhausted)
    )


def _renewed(
    known: Transaction, claimed: Identity, timeout_ms: int, new_id: Callable[[], int | None], now_ms: int
) -> Transaction | ErrorCode:
    held, last_epoch = known.identity, known.last_epoch
    empty = replace(
        known,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIME_MS,
        updated_ms=now_ms,
    )
    if claimed not in {NOBODY, held}:
        if claimed.epoch != last_epoch or claimed.epoch == NO_EPOCH:
            return ErrorCode.PRODUCER_FENCED
        return empty  # the answer was lost, and he asks again
    last_epoch = NO_EPOCH if claimed == NOBODY else claimed.epoch
    if not held.exhausted:
        return replace(empty, identity=Identity(held.producer_id, held.epoch + 1), last_epoch=last_epoch)
    producer_id = new_id()
    if producer_id is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return replace(empty, identity=Identity(producer_id, 0), previous_id=held.producer_id, last_epoch=last_epoch)


def _resumed(
    known: Transaction, claimed: Identity, timeout_ms: int, new_id: Callable[[], int | None], now_ms: int
) -> Transaction | ErrorCode:
    """The transaction stays as it is. Its holder gets a higher epoch, with which he can end it and nothing else."""
    held = known.holder
    if claimed not in {NOBODY, held}:
        return ErrorCode.PRODUCER_FENCED
    successor = Identity(held.producer_id, held.epoch + 1)
    if held.exhausted:
        producer_id = new_id()
        if producer_id is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        successor = Identity(producer_id, 0)
    return replace(known, successor=successor, timeout_ms=timeout_ms, last_epoch=NO_EPOCH, updated_ms=now_ms)
