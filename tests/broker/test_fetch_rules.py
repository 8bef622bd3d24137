"""Fetch: what a reply holds, how long it waits, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import (
    LATEST,
    batch_of,
    bytes_of,
    create_topic,
    describe,
    fetch,
    fetch_request,
    list_offset,
    produce,
    records_of,
    try_fetch,
    try_produce,
    values_in,
)

from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.records.compression import Codec
from tidelog.records.record import iter_batches
from tidelog.testing import RawClient
from tidelog.types import new_topic_id
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.testing import BrokerProcess

FOREVER_MS = 600_000
"""Longer than any reply is waited for: a fetch that should answer at once but waits fails its test."""


def several(
    topic: str, offsets: Sequence[tuple[int, int]], *, max_bytes: int, partition_max_bytes: int
) -> FetchRequest:
    """A fetch of several (partition, offset) of one topic."""
    partitions = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for partition, offset in offsets
    ]
    return FetchRequest(
        max_wait_ms=FOREVER_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )


def sizes(response: FetchResponse) -> list[int]:
    return [len(bytes_of(data)) for entry in response.responses for data in entry.partitions]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_gives_the_records(raw: RawClient, topic: str, version: int) -> None:
    topic_id = create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b"]))
    data = try_fetch(raw, fetch_request(topic, 0, topic_id=topic_id), version)
    assert data.error_code == ErrorCode.NONE
    assert [record.value for record in records_of(data)] == [b"a", b"b"]
    assert data.high_watermark == 2
    assert data.last_stable_offset == 2
    assert not data.aborted_transactions


def test_records_are_empty_never_null_when_there_are_none(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert try_fetch(raw, fetch_request(topic, 0)).records == b""
    assert try_fetch(raw, fetch_request(topic, 5)).records == b"", "nor with an error"
    assert try_fetch(raw, fetch_request(topic, 0, partition=9)).records == b""


def test_a_fetch_in_the_middle_of_a_batch_gives_the_whole_batch(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b", b"c"]))
    produce(raw, topic, batch_of([b"d"]))
    assert [record.offset for record in fetch(raw, topic, 1)] == [0, 1, 2, 3]
    assert [record.offset for record in fetch(raw, topic, 3)] == [3]


def test_the_first_batch_comes_whole_however_small_the_limits(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    value = b"v" * 100_000
    produce(raw, topic, batch_of([value]))
    produce(raw, topic, batch_of([b"next"]))
    data = try_fetch(raw, fetch_request(topic, 0, max_bytes=1, partition_max_bytes=1))
    assert [record.value for record in records_of(data)] == [value]


def test_only_the_first_partition_with_data_may_exceed_the_limits(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=3)
    for partition in (1, 2):
        produce(raw, topic, batch_of([bytes(50_000)]), partition)
    request = several(topic, [(0, 0), (1, 0), (2, 0)], max_bytes=10, partition_max_bytes=10)
    empty, first, second = sizes(raw.call(request, 12, FetchResponse))
    assert empty == 0
    assert first > 50_000
    assert second == 0


def test_a_reply_keeps_within_max_bytes_and_partition_max_bytes(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=4)
    batch = batch_of([bytes(10_000)])
    for partition in range(4):
        for _ in range(10):
            produce(raw, topic, batch, partition)
    offsets = [(partition, 0) for partition in range(4)]
    by_partition = sizes(
        raw.call(several(topic, offsets, max_bytes=1 << 30, partition_max_bytes=35_000), 12, FetchResponse)
    )
    assert by_partition == [3 * len(batch)] * 4
    in_all = sizes(raw.call(several(topic, offsets, max_bytes=55_000, partition_max_bytes=35_000), 12, FetchResponse))
    assert sum(in_all) <= 55_000
    assert in_all[:2] == [3 * len(batch), 2 * len(batch)]


def test_replies_hold_whole_batches_only(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    batch = batch_of([b"0123456789" * 10])
    for _ in range(50):
        produce(raw, topic, batch)
    for limit in range(len(batch), 6 * len(batch), 37):
        data = bytes_of(try_fetch(raw, fetch_request(topic, 7, partition_max_bytes=limit)))
        whole = list(iter_batches(data))
        assert sum(len(entry.data) for entry in whole) == len(data)
        assert whole[0].header.base_offset == 7
        assert len(whole) == limit // len(batch)


def test_nothing_to_read_is_answered_after_max_wait(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    clock = SystemClock()
    start = clock.monotonic()
    data = try_fetch(raw, fetch_request(topic, 0, max_wait_ms=300))
    assert clock.monotonic() - start >= 0.28
    assert (data.error_code, data.records) == (ErrorCode.NONE, b"")


def test_a_waiting_fetch_is_answered_when_a_record_arrives(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic)
    waiting = raw.send(fetch_request(topic, 0, max_wait_ms=FOREVER_MS), 12)
    with RawClient(broker.port) as other:
        produce(other, topic, batch_of([b"news"]))
    reply = raw.receive(FetchResponse, 12, waiting)
    assert [record.value for record in records_of(reply.responses[0].partitions[0])] == [b"news"]


def test_a_fetch_waits_for_min_bytes_over_all_its_partitions(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic, partitions=2)
    batch = batch_of([bytes(1000)])
    request = several(topic, [(0, 0), (1, 0)], max_bytes=1 << 20, partition_max_bytes=1 << 20)
    request.min_bytes = len(batch) + 1
    waiting = raw.send(request, 12)
    with RawClient(broker.port) as other:
        produce(other, topic, batch, 0)
        produce(other, topic, batch, 1)
    assert sizes(raw.receive(FetchResponse, 12, waiting)) == [len(batch), len(batch)]


@pytest.mark.parametrize(("partition", "offset"), [(9, 0), (0, 99), (0, -5)])
def test_an_error_in_one_partition_is_answered_at_once(raw: RawClient, topic: str, partition: int, offset: int) -> None:
    create_topic(raw, topic, partitions=2)
    request = several(topic, [(1, 0), (partition, offset)], max_bytes=1 << 20, partition_max_bytes=1 << 20)
    fine, wrong = raw.call(request, 12, FetchResponse).responses[0].partitions
    assert fine.error_code == ErrorCode.NONE
    assert wrong.error_code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE}


def test_data_below_min_bytes_comes_after_max_wait(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"little"]))
    data = try_fetch(raw, fetch_request(topic, 0, max_wait_ms=100, min_bytes=1 << 20))
    assert [record.value for record in records_of(data)] == [b"little"]


def test_min_bytes_zero_is_answered_at_once(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert try_fetch(raw, fetch_request(topic, 0, max_wait_ms=FOREVER_MS, min_bytes=0)).records == b""


def test_offsets_outside_the_log_are_out_of_range_and_its_end_is_not(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b"]))
    assert try_fetch(raw, fetch_request(topic, 2)).error_code == ErrorCode.NONE
    for offset in (3, 2**62, -1):
        assert try_fetch(raw, fetch_request(topic, offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [4, 12])
def test_an_unknown_topic_or_partition_is_refused_by_name(raw: RawClient, topic: str, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert try_fetch(raw, fetch_request(topic, 0), version).error_code == unknown
    create_topic(raw, topic)
    assert try_fetch(raw, fetch_request(topic, 0, partition=1), version).error_code == unknown


def test_an_unknown_topic_is_refused_by_id(raw: RawClient) -> None:
    data = try_fetch(raw, fetch_request("", 0, topic_id=new_topic_id()), 13)
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_leader_epoch_of_the_future_is_unknown(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    epoch = describe(raw, topic).partitions[0].leader_epoch
    assert try_fetch(raw, fetch_request(topic, 0, leader_epoch=epoch)).error_code == ErrorCode.NONE
    ahead = try_fetch(raw, fetch_request(topic, 0, leader_epoch=epoch + 1))
    assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_zstd_needs_fetch_version_10(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"value"], codec=Codec.ZSTD))
    old = try_fetch(raw, fetch_request(topic, 0), 9)
    assert (old.error_code, old.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"")
    assert try_fetch(raw, fetch_request(topic, 0), 10).error_code == ErrorCode.NONE


def test_read_committed_sees_everything_while_there_are_no_transactions(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a"]))
    request = fetch_request(topic, 0)
    request.isolation_level = 1
    data = try_fetch(raw, request)
    assert [record.value for record in records_of(data)] == [b"a"]
    assert data.last_stable_offset == data.high_watermark == 1
    assert data.aborted_transactions == []


def test_what_is_acknowledged_can_be_read_at_once(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic)
    with RawClient(broker.port) as reader:
        for number in range(50):
            acks = 1 if number % 2 else -1
            result = try_produce(raw, topic, batch_of([b"%d" % number]), acks=acks)
            assert result.base_offset == number
            assert list_offset(reader, topic, LATEST).offset == number + 1
            assert [record.value for record in fetch(reader, topic, number)] == [b"%d" % number]


def test_a_log_of_many_segments_is_read_through(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"segment.bytes": str(1 << 20)})
    values: list[bytes | None] = [b"%06d" % number * 30_000 for number in range(30)]
    for value in values:
        produce(raw, topic, batch_of([value]))
    assert values_in(raw, topic) == values


def test_a_slow_reader_gets_every_byte_of_a_large_reply(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic)
    batch = batch_of([bytes(range(256)) * 4000])
    for _ in range(16):
        produce(raw, topic, batch)
    request = fetch_request(topic, 0, max_bytes=1 << 30, partition_max_bytes=1 << 30)
    waiting = raw.send(request, 12)
    with RawClient(broker.port) as other:
        produce(other, topic, batch_of([b"others are served meanwhile"]))
    data = raw.receive(FetchResponse, 12, waiting).responses[0].partitions[0]
    assert [len(entry.data) for entry in iter_batches(bytes_of(data))][:16] == [len(batch)] * 16
    assert all(bytes(entry.data[61:]) == batch[61:] for entry in list(iter_batches(bytes_of(data)))[:16])
