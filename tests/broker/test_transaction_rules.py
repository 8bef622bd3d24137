"""The requests of transactions, as a real broker answers them version by version."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from asking import RECENT_MS, create_topic, produce_request

from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.record import Record
from tidelog.testing import RawClient
from tidelog.types import ProducerId
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.testing import StartBroker

TRANSACTION = 1
TIMEOUT_MS = 60_000

Identity = tuple[int, int]


@pytest.fixture
def name(raw: RawClient) -> str:
    """A transactional id of the test's own, whose coordinator is known."""
    chosen = f"writer-{uuid.uuid4().hex[:8]}"
    request = FindCoordinatorRequest(coordinator_keys=[chosen], key_type=TRANSACTION)
    (found,) = raw.call(request, 4, FindCoordinatorResponse).coordinators
    assert found.error_code == ErrorCode.NONE
    return chosen


def try_init(
    client: RawClient, name: str, *, version: int = 6, timeout_ms: int = TIMEOUT_MS, claimed: Identity = (-1, -1)
) -> InitProducerIdResponse:
    """Until the coordinator has loaded what it needs, and has ended what was open."""
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=claimed[0],
        producer_epoch=claimed[1],
    )
    while True:
        reply = client.call(request, version, InitProducerIdResponse)
        if reply.error_code not in {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS}:
            return reply


def init(client: RawClient, name: str) -> Identity:
    reply = try_init(client, name)
    assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code)
    return reply.producer_id, reply.producer_epoch


def add(
    client: RawClient, name: str, who: Identity, topics: Mapping[str, list[int]], *, version: int = 3
) -> dict[tuple[str, int], int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in topics.items()],
    )
    while True:
        reply = client.call(request, version, AddPartitionsToTxnResponse)
        codes = {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in reply.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        if ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
            return codes


def end(client: RawClient, name: str, who: Identity, *, commit: bool, version: int = 4) -> EndTxnResponse:
    request = EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit)
    while True:
        reply = client.call(request, version, EndTxnResponse)
        if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            return reply


def test_transaction_version_2_is_in_force(raw: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    newer = raw.call(request, 4, ApiVersionsResponse)
    (feature,) = newer.finalized_features
    assert (feature.name, feature.min_version_level, feature.max_version_level) == ("transaction.version", 2, 2)
    (supported,) = newer.supported_features
    assert (supported.name, supported.min_version, supported.max_version) == ("transaction.version", 0, 2)
    assert newer.finalized_features_epoch >= 0
    older = raw.call(request, 3, ApiVersionsResponse)
    assert older.finalized_features == newer.finalized_features
    assert older.supported_features == [], "version 3 cannot tell of a feature that may be off"


@pytest.mark.parametrize("version", range(7))
def test_every_version_of_init_producer_id_gives_an_id(raw: RawClient, name: str, version: int) -> None:
    reply = try_init(raw, name, version=version)
    assert (reply.error_code, reply.producer_epoch) == (ErrorCode.NONE, 0)
    assert reply.producer_id >= 0


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_a_fenced_producer_is_told_so_in_words_that_it_knows(
    raw: RawClient, name: str, version: int, code: ErrorCode
) -> None:
    first = init(raw, name)
    init(raw, name)
    assert try_init(raw, name, version=version, claimed=first).error_code == code


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, 90), (3, 90)],
)
def test_so_is_one_that_adds_or_ends(raw: RawClient, name: str, topic: str, version: int, code: int) -> None:
    create_topic(raw, topic)
    fenced = init(raw, name)
    init(raw, name)
    assert add(raw, name, fenced, {topic: [0]}, version=version) == {(topic, 0): code}
    assert end(raw, name, fenced, commit=True, version=version).error_code == code
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=fenced[0], producer_epoch=fenced[1], group_id="g"
    )
    assert raw.call(request, version, AddOffsetsToTxnResponse).error_code == code


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_end_txn_commits(raw: RawClient, name: str, topic: str, version: int) -> None:
    create_topic(raw, topic)
    who = init(raw, name)
    assert add(raw, name, who, {topic: [0]}) == {(topic, 0): 0}
    reply = end(raw, name, who, commit=True, version=version)
    assert reply.error_code == ErrorCode.NONE
    if version == 5:
        assert (reply.producer_id, reply.producer_epoch) == (who[0], who[1] + 1)
    assert end(raw, name, who, commit=True, version=version).error_code == ErrorCode.NONE, "repeated"


def test_partitions_are_added_all_or_none(raw: RawClient, name: str, topic: str) -> None:
    create_topic(raw, topic, 2)
    who = init(raw, name)
    assert add(raw, name, who, {topic: [0, 7], "nowhere": [0]}) == {
        (topic, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert end(raw, name, who, commit=True).error_code == ErrorCode.INVALID_TXN_STATE, "nothing was begun"


@pytest.mark.parametrize("version", [4, 5])
def test_only_brokers_may_ask_for_several_transactions(raw: RawClient, name: str, version: int) -> None:
    who = init(raw, name)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=who[0],
        producer_epoch=who[1],
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    reply = raw.call(AddPartitionsToTxnRequest(transactions=[transaction]), version, AddPartitionsToTxnResponse)
    assert (reply.error_code, reply.results_by_transaction) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def write(
    client: RawClient, name: str, who: Identity, topic: str, value: bytes, *, sequence: int = 0, version: int = 12
) -> int:
    """The error code of one record in a transaction."""
    batch = build_batch(
        [Record(0, RECENT_MS, None, value)],
        producer_id=ProducerId(who[0]),
        producer_epoch=who[1],
        base_sequence=sequence,
        transactional=True,
    )
    request = produce_request(topic, batch)
    request.transactional_id = name
    while True:
        (written,) = client.call(request, version, ProduceResponse).responses
        (result,) = written.partition_responses
        if result.error_code not in {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}:
            return result.error_code


def test_writing_joins_the_transaction_and_every_end_moves_on_to_the_next_epoch(
    raw: RawClient, name: str, topic: str
) -> None:
    """As producers do it that know transaction.version 2: no partition is ever added by request."""
    create_topic(raw, topic)
    who = init(raw, name)
    for number in range(5):
        assert write(raw, name, who, topic, b"%d" % number) == ErrorCode.NONE
        reply = end(raw, name, who, commit=number % 2 == 0, version=5)
        assert reply.error_code == ErrorCode.NONE
        late, who = who, (reply.producer_id, reply.producer_epoch)
        assert who > late
        assert write(raw, name, late, topic, b"late", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    reply = end(raw, name, who, commit=False, version=5)
    assert (reply.error_code, reply.producer_epoch) == (ErrorCode.NONE, who[1] + 1), "nothing can be aborted too"


def test_older_producers_must_add_a_partition_before_they_write_to_it(raw: RawClient, name: str, topic: str) -> None:
    create_topic(raw, topic)
    who = init(raw, name)
    assert write(raw, name, who, topic, b"x", version=10) == ErrorCode.INVALID_TXN_STATE
    assert write(raw, name, who, topic, b"x", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    add(raw, name, who, {topic: [0]})
    assert write(raw, name, who, topic, b"x", version=10) == ErrorCode.NONE


def described(client: RawClient, *names: str) -> DescribeTransactionsResponse:
    return client.call(DescribeTransactionsRequest(transactional_ids=list(names)), 0, DescribeTransactionsResponse)


def test_transactions_are_described_and_listed(raw: RawClient, name: str, topic: str) -> None:
    create_topic(raw, topic, 2)
    who = init(raw, name)
    add(raw, name, who, {topic: [1]})
    shown, unknown = described(raw, name, "never-seen").transaction_states
    assert (shown.error_code, shown.transaction_state, shown.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (shown.producer_id, shown.producer_epoch) == who
    assert [(each.topic, each.partitions) for each in shown.topics] == [(topic, [1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[who[0]])
    for version in range(3):
        (listed,) = raw.call(request, version, ListTransactionsResponse).transaction_states
        assert (listed.transactional_id, listed.producer_id) == (name, who[0])
    end(raw, name, who, commit=True)
    end(raw, name, who, commit=True)  # answered once it is complete
    assert described(raw, name).transaction_states[0].transaction_state == "CompleteCommit"


def test_an_abandoned_transaction_is_aborted_by_the_broker(raw: RawClient, name: str, topic: str) -> None:
    create_topic(raw, topic)
    reply = try_init(raw, name, timeout_ms=1)
    who = (reply.producer_id, reply.producer_epoch)
    add(raw, name, who, {topic: [0]})
    while described(raw, name).transaction_states[0].transaction_state != "CompleteAbort":
        pass
    assert add(raw, name, who, {topic: [0]}) == {(topic, 0): ErrorCode.PRODUCER_FENCED}


def test_what_was_prepared_is_completed_after_a_crash(fresh_broker: StartBroker, topic: str) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        raw_name = "writer"
        client.call(
            FindCoordinatorRequest(coordinator_keys=[raw_name], key_type=TRANSACTION), 4, FindCoordinatorResponse
        )
        create_topic(client, topic, 20)
        who = init(client, raw_name)
        add(client, raw_name, who, {topic: list(range(20))})
        request = EndTxnRequest(transactional_id=raw_name, producer_id=who[0], producer_epoch=who[1], committed=True)
        assert client.call(request, 4, EndTxnResponse).error_code == ErrorCode.NONE
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        client.call(
            FindCoordinatorRequest(coordinator_keys=[raw_name], key_type=TRANSACTION), 4, FindCoordinatorResponse
        )
        while described(client, raw_name).transaction_states[0].transaction_state != "CompleteCommit":
            pass
        assert init(client, raw_name) == (who[0], who[1] + 1)
