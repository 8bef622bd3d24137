"""What becomes of a batch after the broker's answer, or the lack of one. A table and two questions."""

from __future__ import annotations

from enum import Enum

from tidelog.errors import ErrorCode


class Verdict(Enum):
    DELIVERED = "stored"
    RETRY = "send the same bytes again"
    RENEW = "send the records again under a new producer id"
    SPLIT = "send the records as two batches"
    FAIL = "give up"


_STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)

_MAYBE_STORED = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})

_IDENTITY_UNKNOWN = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


def judge(code: ErrorCode, *, record_count: int, maybe_stored: bool, transactional: bool = False) -> Verdict:
    """`maybe_stored`: an earlier attempt ended without a clear answer."""
    if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
        return Verdict.DELIVERED
    if code in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}:
        return Verdict.SPLIT if record_count > 1 and not maybe_stored else Verdict.FAIL
    if code in _IDENTITY_UNKNOWN:
        # The broker lost track of us. What it surely does not have can be sent anew; the rest might be stored twice.
        # A transaction has one identity from its beginning to its end.
        return Verdict.FAIL if maybe_stored or transactional else Verdict.RENEW
    return Verdict.RETRY if code.retriable else Verdict.FAIL


def leaves_doubt(code: ErrorCode) -> bool:
    """Whether the batch may have been stored although this is an error."""
    return code in _MAYBE_STORED


def sequence_is_unknown(code: ErrorCode) -> bool:
    """Whether the broker and the producer do not agree on what comes next."""
    return code in _IDENTITY_UNKNOWN


def metadata_is_stale(code: ErrorCode) -> bool:
    return code in _STALE_METADATA
