from __future__ import annotations

import pytest

from tidelog.client.transactions.reactions import Reaction, react
from tidelog.errors import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

E, R = ErrorCode, Reaction
INIT, ADD, OFFSETS = InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest
COMMIT, END, PRODUCE = TxnOffsetCommitRequest, EndTxnRequest, ProduceRequest
COORDINATOR = [INIT, ADD, OFFSETS, COMMIT, END]


@pytest.mark.parametrize("request_kind", [*COORDINATOR, PRODUCE])
def test_no_error_is_no_matter(request_kind: type) -> None:
    assert react(request_kind, E.NONE) is R.DONE


@pytest.mark.parametrize("request_kind", COORDINATOR)
@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (E.NOT_COORDINATOR, R.MOVED),
        (E.COORDINATOR_NOT_AVAILABLE, R.MOVED),
        (E.COORDINATOR_LOAD_IN_PROGRESS, R.RETRY),
        (E.CONCURRENT_TRANSACTIONS, R.RETRY),
        (E.PRODUCER_FENCED, R.FENCED),
        (E.INVALID_PRODUCER_EPOCH, R.FENCED),
        (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, R.FATAL),
        (E.INVALID_TXN_STATE, R.FATAL),
        (E.TRANSACTION_ABORTABLE, R.ABORT),
        (E.UNKNOWN_SERVER_ERROR, R.FATAL),
    ],
)
def test_what_every_coordinator_may_answer(request_kind: type, code: ErrorCode, reaction: Reaction) -> None:
    assert react(request_kind, code) is reaction


@pytest.mark.parametrize(
    ("request_kind", "code", "reaction"),
    [
        (INIT, E.INVALID_TRANSACTION_TIMEOUT, R.FATAL),
        (INIT, E.CLUSTER_AUTHORIZATION_FAILED, R.FATAL),
        (ADD, E.UNKNOWN_TOPIC_OR_PARTITION, R.RETRY),
        (ADD, E.TOPIC_AUTHORIZATION_FAILED, R.ABORT),
        (ADD, E.INVALID_PRODUCER_ID_MAPPING, R.ABORT),
        (ADD, E.OPERATION_NOT_ATTEMPTED, R.ABORT),
        (OFFSETS, E.GROUP_AUTHORIZATION_FAILED, R.ABORT),
        (OFFSETS, E.INVALID_PRODUCER_ID_MAPPING, R.ABORT),
        (COMMIT, E.REQUEST_TIMED_OUT, R.MOVED),
        (COMMIT, E.ILLEGAL_GENERATION, R.ABORT),
        (COMMIT, E.UNKNOWN_MEMBER_ID, R.ABORT),
        (COMMIT, E.FENCED_INSTANCE_ID, R.ABORT),
        (COMMIT, E.STALE_MEMBER_EPOCH, R.ABORT),
        (COMMIT, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, R.FATAL),
        (END, E.INVALID_PRODUCER_ID_MAPPING, R.ABORT),
        (PRODUCE, E.INVALID_PRODUCER_EPOCH, R.ABORT),
        (PRODUCE, E.PRODUCER_FENCED, R.FENCED),
        (PRODUCE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, R.ABORT),
        (PRODUCE, E.MESSAGE_TOO_LARGE, R.ABORT),
        (PRODUCE, E.INVALID_TXN_STATE, R.FATAL),
        (PRODUCE, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, R.FATAL),
        (PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, R.ABORT),
        (PRODUCE, E.TRANSACTION_ABORTABLE, R.ABORT),
    ],
)
def test_what_only_some_answer(request_kind: type, code: ErrorCode, reaction: Reaction) -> None:
    assert react(request_kind, code) is reaction
