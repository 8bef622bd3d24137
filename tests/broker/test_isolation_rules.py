"""What readers see of transactions, on a real broker: before they end, after they end, and after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from asking import LATEST, RECENT_MS, bytes_of, create_topic, describe, fetch_request, produce_request, try_list_offset

from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.testing import RawClient
from tidelog.types import ProducerId
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from tidelog.wire.messages.fetch import FetchResponse, PartitionData
from tidelog.wire.messages.produce import ProduceResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.testing import BrokerProcess, StartBroker

TRUSTING = {"transaction.partition.verification.enable": "false", "log.segment.bytes": str(1 << 20)}
"""So that a transaction can begin of which no coordinator knows: a hanging one."""


@pytest.fixture
def trusting(fresh_broker: StartBroker) -> BrokerProcess:
    return fresh_broker(TRUSTING)


@pytest.fixture
def client(trusting: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(trusting.port) as client:
        yield client


class Seen(NamedTuple):
    values: list[bytes | None]
    last_stable_offset: int
    aborted: list[tuple[int, int]] | None


def write(client: RawClient, topic: str, producer_id: int, sequence: int, *values: bytes) -> int:
    """Part of a transaction; gives the error code."""
    batch = build_batch(
        [Record(at, RECENT_MS, b"k", value) for at, value in enumerate(values)],
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    request = produce_request(topic, batch)
    request.transactional_id = f"writer-{producer_id}"
    return client.call(request, 11, ProduceResponse).responses[0].partition_responses[0].error_code


def mark(client: RawClient, topic: str, producer_id: int, *, commit: bool, version: int = 1) -> int:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    reply = client.call(WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse)
    return reply.markers[0].topics[0].partitions[0].error_code


def read(client: RawClient, topic: str, *, committed: bool, version: int = 12) -> Seen:
    """Everything, however many fetches that takes."""
    topic_id = describe(client, topic).topic_id
    values: list[bytes | None] = []
    aborted: list[tuple[int, int]] | None = None
    offset = 0
    while True:
        request = fetch_request(topic, offset, topic_id=topic_id)
        request.isolation_level = int(committed)
        (found,) = client.call(request, version, FetchResponse).responses
        (data,) = found.partitions
        assert data.error_code == ErrorCode.NONE
        named = data.aborted_transactions
        if named is not None:
            news = [(each.producer_id, each.first_offset) for each in named]
            aborted = [*(aborted or []), *(each for each in news if each not in (aborted or []))]
        if not bytes_of(data):
            return Seen(values, data.last_stable_offset, aborted)
        values += visible(data)
        offset = [header.next_offset for header, _ in iter_batches(bytes_of(data))][-1]


def visible(data: PartitionData) -> list[bytes | None]:
    """What a reader hands on."""
    coming = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or [])
    aborted: set[int] = set()
    values: list[bytes | None] = []
    for header, batch in iter_batches(bytes_of(data)):
        while coming and coming[0][0] <= header.last_offset:
            aborted.add(coming.pop(0)[1])
        if header.control:
            aborted.discard(header.producer_id)
        elif header.producer_id not in aborted:
            values += [record.value for record in iter_records(batch)]
    return values


@pytest.mark.parametrize("version", [4, 6, 11, 12, 13, 16, 18])
def test_every_version_of_fetch_names_aborted_transactions(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic)
    assert write(client, topic, 1, 0, b"void") == ErrorCode.NONE
    assert write(client, topic, 2, 0, b"good") == ErrorCode.NONE
    assert mark(client, topic, 1, commit=False) == ErrorCode.NONE
    assert read(client, topic, committed=True, version=version) == Seen([], 1, [(1, 0)])
    assert mark(client, topic, 2, commit=True, version=2) == ErrorCode.NONE
    assert read(client, topic, committed=True, version=version) == Seen([b"good"], 4, [(1, 0)])
    assert read(client, topic, committed=False, version=version).values == [b"void", b"good"]


def test_the_latest_offset_is_the_last_stable_one_for_readers_of_what_is_committed(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    write(client, topic, 1, 0, b"a", b"b")
    for version in range(2, 12):
        assert try_list_offset(client, topic, LATEST, version=version, isolation_level=1).offset == 0
        assert try_list_offset(client, topic, LATEST, version=version, isolation_level=0).offset == 2
    mark(client, topic, 1, commit=True)
    assert try_list_offset(client, topic, LATEST, isolation_level=1).offset == 3


def test_a_hanging_transaction_can_be_found_and_aborted(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    write(client, topic, 1, 0, b"nobody will end this")
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    ((shown,),) = (
        each.active_producers for each in client.call(request, 0, DescribeProducersResponse).topics[0].partitions
    )
    assert (shown.producer_id, shown.producer_epoch, shown.current_txn_start_offset) == (1, 0, 0)
    assert mark(client, topic, 1, commit=False) == ErrorCode.NONE
    assert read(client, topic, committed=True) == Seen([], 2, [(1, 0)])


def test_transactions_survive_a_crash_and_a_clean_stop(trusting: BrokerProcess, topic: str) -> None:
    """Over many segments: aborted, committed and open ones are the same afterwards."""
    with RawClient(trusting.port) as client:
        create_topic(client, topic)
        for round_ in range(12):
            for producer_id in (1, 2, 3):
                value = b"%d of %d " % (round_, producer_id) + bytes(90_000)
                assert write(client, topic, producer_id, round_, value) == ErrorCode.NONE
            for producer_id in (2, 1, 3) if round_ < 11 else ():
                mark(client, topic, producer_id, commit=(round_ + producer_id) % 3 > 0)
        before = read(client, topic, committed=True)
        everything = read(client, topic, committed=False)
    assert len(before.values) == 22
    assert len(before.aborted or []) == 11
    trusting.kill()
    trusting.start()
    with RawClient(trusting.port) as client:
        assert read(client, topic, committed=True) == before
        assert read(client, topic, committed=False) == everything
    trusting.stop()
    trusting.start()
    with RawClient(trusting.port) as client:
        assert read(client, topic, committed=True) == before
        assert write(client, topic, 1, 12, b"goes on") == ErrorCode.NONE
        for producer_id in (1, 2, 3):
            assert mark(client, topic, producer_id, commit=True) == ErrorCode.NONE
        assert len(read(client, topic, committed=True).values) == 26
