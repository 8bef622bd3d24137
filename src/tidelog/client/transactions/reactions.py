"""What a coordinator's answers mean to a producer. Tables.

Abortable: the transaction is lost, the producer is not. Fatal: the producer can do nothing more, and is to be closed.
Fenced is fatal too: somebody else has the transactional id now.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.errors import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from tidelog.wire.declare import Message


class Reaction(Enum):
    DONE = "go on"
    RETRY = "ask again"
    MOVED = "look for the coordinator, then ask again"
    ABORT = "the transaction can only be aborted"
    FATAL = "nothing more can be done"
    FENCED = "somebody else holds the transactional id"


_E = ErrorCode
_MOVED: Final = frozenset({_E.NOT_COORDINATOR, _E.COORDINATOR_NOT_AVAILABLE})
_FENCED: Final = frozenset({_E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH})
_FORGOTTEN: Final = frozenset({_E.UNKNOWN_PRODUCER_ID, _E.INVALID_PRODUCER_ID_MAPPING})
_NOT_A_MEMBER: Final = frozenset({_E.FENCED_INSTANCE_ID, _E.UNKNOWN_MEMBER_ID, _E.ILLEGAL_GENERATION})
_NO_RIGHT: Final = frozenset({_E.TOPIC_AUTHORIZATION_FAILED, _E.GROUP_AUTHORIZATION_FAILED})

_ABORTABLE: Final[dict[type[Message], frozenset[ErrorCode]]] = {
    InitProducerIdRequest: frozenset(),
    AddPartitionsToTxnRequest: _FORGOTTEN | _NO_RIGHT | {_E.OPERATION_NOT_ATTEMPTED},
    AddOffsetsToTxnRequest: _FORGOTTEN | _NO_RIGHT,
    TxnOffsetCommitRequest: _NOT_A_MEMBER | _NO_RIGHT | {_E.STALE_MEMBER_EPOCH, _E.FENCED_MEMBER_EPOCH},
    EndTxnRequest: _FORGOTTEN,
}

_FATAL_TO_RECORDS: Final = frozenset(
    {
        _E.PRODUCER_FENCED,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        _E.CLUSTER_AUTHORIZATION_FAILED,
        _E.UNSUPPORTED_VERSION,
        _E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        _E.INVALID_TXN_STATE,
    }
)


def react(request: type[Message], code: ErrorCode) -> Reaction:
    """To the answer to a request that a transaction depends on."""
    if code is _E.NONE:
        return Reaction.DONE
    if request is ProduceRequest:
        return _react_to_refused_records(code)
    if code in _MOVED or (request is TxnOffsetCommitRequest and code is _E.REQUEST_TIMED_OUT):
        return Reaction.MOVED
    if code.retriable:
        return Reaction.RETRY
    if code in _FENCED:
        return Reaction.FENCED
    if code is _E.TRANSACTION_ABORTABLE or code in _ABORTABLE[request]:
        return Reaction.ABORT
    return Reaction.FATAL


def _react_to_refused_records(code: ErrorCode) -> Reaction:
    """To records that are given up. An old epoch alone does not tell who is to blame: aborting will (KIP-588)."""
    if code is _E.PRODUCER_FENCED:
        return Reaction.FENCED
    return Reaction.FATAL if code in _FATAL_TO_RECORDS else Reaction.ABORT
