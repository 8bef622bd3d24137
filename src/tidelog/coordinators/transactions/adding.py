"""What is in a transaction: putting partitions into it, and telling leaders whether theirs is (KIP-890)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.coordinators.transactions.states import TransactionState
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from tidelog.coordinators.transactions.transaction import Identity, Transaction
    from tidelog.types import TopicPartition


def add(
    known: Transaction | None,
    claimed: Identity,
    partitions: AbstractSet[TopicPartition],
    version: int,
    now_ms: int,
    *,
    record_bytes_max: int,
) -> Transaction | ErrorCode:
    """What is to be stored. NONE if they are all in it already."""
    if known is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.state.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # before all else: the holder may already go by his next id
    code = _check_holder(known, claimed)
    if code:
        return code
    if known.resumed:
        return ErrorCode.INVALID_TXN_STATE
    ongoing = known.state is TransactionState.ONGOING
    if not partitions or (ongoing and partitions <= known.partitions):
        return ErrorCode.NONE
    extended = replace(
        known,
        state=TransactionState.ONGOING,
        partitions=known.partitions | partitions,
        started_ms=known.started_ms if ongoing else now_ms,
        updated_ms=now_ms,
        version=version,
    )
    if extended.stored_bytes_at_most() > record_bytes_max:
        return ErrorCode.POLICY_VIOLATION
    return extended


def verify(
    known: Transaction | None, claimed: Identity, partitions: AbstractSet[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    """For each partition, whether it is in the open transaction of the one who writes to it."""
    if known is None:
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    code = _check_holder(known, claimed)
    if not code and known.state.prepared:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
    if not code and known.resumed:
        code = ErrorCode.INVALID_TXN_STATE
    if code:
        return dict.fromkeys(partitions, code)
    return {
        place: ErrorCode.NONE if place in known.partitions else ErrorCode.TRANSACTION_ABORTABLE for place in partitions
    }


def _check_holder(known: Transaction, claimed: Identity) -> ErrorCode:
    if claimed.producer_id != known.holder.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if claimed.epoch != known.holder.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE
