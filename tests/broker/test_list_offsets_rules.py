"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a partition starts, ends, and was at some time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    RECENT_MS,
    batch_of,
    create_topic,
    describe,
    fetch,
    fetch_request,
    list_offset,
    produce,
    try_fetch,
    try_list_offset,
    values_in,
)

from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.record import Record
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.testing import RawClient

EARLIEST_LOCAL = -4
LATEST_TIERED = -5


def stamped(times: Sequence[int], codec: Codec = Codec.NONE) -> bytearray:
    """A batch of records at these milliseconds after `RECENT_MS`."""
    records = [Record(index, RECENT_MS + time, b"k", b"v") for index, time in enumerate(times)]
    return build_batch(records, codec=codec)


def found_at(client: RawClient, topic: str, time: int) -> tuple[int, int]:
    """Offset and time (after `RECENT_MS`) of the first record that is not older than `time`."""
    result = list_offset(client, topic, RECENT_MS + time)
    return result.offset, result.timestamp - RECENT_MS


def delete_before(
    client: RawClient, topic: str, offset: int, partition: int = 0, *, version: int = 2
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000)
    (entry,) = client.call(request, version, DeleteRecordsResponse).topics
    (result,) = entry.partitions
    return result


def end_of_epoch(
    client: RawClient, topic: str, epoch: int, partition: int = 0, *, current: int = -1, version: int = 4
) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    (entry,) = client.call(request, version, OffsetForLeaderEpochResponse).topics
    (result,) = entry.partitions
    return result


@pytest.mark.parametrize("version", range(1, 12))
def test_start_and_end_in_every_version(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic)
    assert list_offset(raw, topic, LATEST, version=version).offset == 0
    produce(raw, topic, batch_of([b"a", b"b", b"c"]))
    assert list_offset(raw, topic, EARLIEST, version=version).offset == 0
    latest = list_offset(raw, topic, LATEST, version=version)
    assert (latest.offset, latest.timestamp) == (3, -1)


def test_the_leader_epoch_comes_with_the_offset(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a"]))
    epoch = describe(raw, topic).partitions[0].leader_epoch
    assert list_offset(raw, topic, LATEST).leader_epoch == epoch
    assert list_offset(raw, topic, RECENT_MS).leader_epoch == epoch


@pytest.mark.parametrize("codec", Codec)
def test_a_timestamp_finds_the_first_record_that_is_not_older(raw: RawClient, topic: str, codec: Codec) -> None:
    create_topic(raw, topic)
    for batch in ([1000, 1010, 1020], [2000, 2005], [3000]):
        produce(raw, topic, stamped(batch, codec))
    expected = {
        0: (0, 1000),
        1000: (0, 1000),
        1001: (1, 1010),
        1020: (2, 1020),
        1021: (3, 2000),
        2005: (4, 2005),
        2006: (5, 3000),
        3000: (5, 3000),
    }
    for target, found in expected.items():
        assert found_at(raw, topic, target) == found, target


def test_a_timestamp_after_all_records_finds_nothing(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert list_offset(raw, topic, RECENT_MS).offset == -1
    produce(raw, topic, stamped([1000, 2000]))
    result = list_offset(raw, topic, RECENT_MS + 2001)
    assert (result.offset, result.timestamp) == (-1, -1)


def test_the_largest_timestamp_counts_not_the_last(raw: RawClient, topic: str) -> None:
    """Records out of order: an index that trusted the last timestamp would overlook the early large one."""
    create_topic(raw, topic)
    produce(raw, topic, stamped([100, 9000, 200]))
    produce(raw, topic, stamped([300, 400]))
    assert found_at(raw, topic, 5000) == (1, 9000)
    assert found_at(raw, topic, 350) == (1, 9000)
    assert found_at(raw, topic, 100) == (0, 100)


def test_timestamps_are_found_over_many_batches_and_segments(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"segment.bytes": str(1 << 20)})
    for number in range(60):
        produce(raw, topic, batch_of([bytes(50_000)], timestamp_ms=RECENT_MS + 1000 * number))
    for number in (0, 1, 17, 38, 59):
        assert list_offset(raw, topic, RECENT_MS + 1000 * number - 500).offset == number
        assert list_offset(raw, topic, RECENT_MS + 1000 * number).offset == number


def test_the_offset_of_the_largest_timestamp(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    empty = list_offset(raw, topic, MAX_TIMESTAMP)
    assert (empty.offset, empty.timestamp) == (-1, -1)
    produce(raw, topic, stamped([100, 9000, 200]))
    produce(raw, topic, stamped([300, 400]))
    result = list_offset(raw, topic, MAX_TIMESTAMP)
    assert (result.offset, result.timestamp) == (1, RECENT_MS + 9000)


@pytest.mark.parametrize(("mark", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-99, 11)])
def test_a_mark_that_the_version_does_not_know_is_refused(raw: RawClient, topic: str, mark: int, version: int) -> None:
    create_topic(raw, topic)
    assert try_list_offset(raw, topic, mark, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_without_tiered_storage_the_local_log_is_the_log(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b", b"c"]))
    delete_before(raw, topic, 2)
    assert list_offset(raw, topic, EARLIEST_LOCAL, version=8).offset == 2
    assert list_offset(raw, topic, LATEST_TIERED, version=9).offset == -1


def test_unknown_partitions_are_refused_one_by_one(raw: RawClient, topic: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert try_list_offset(raw, topic, LATEST).error_code == unknown
    create_topic(raw, topic)
    assert try_list_offset(raw, topic, LATEST, 1).error_code == unknown
    assert delete_before(raw, topic, 0, 1).error_code == unknown
    assert end_of_epoch(raw, topic, 0, 1).error_code == unknown


def test_a_leader_epoch_of_the_future_is_unknown(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    epoch = describe(raw, topic).partitions[0].leader_epoch
    ahead = try_list_offset(raw, topic, LATEST, leader_epoch=epoch + 1)
    assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_of_epoch(raw, topic, epoch, current=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_current_epoch_ends_at_the_log_end(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b"]))
    epoch = describe(raw, topic).partitions[0].leader_epoch
    result = end_of_epoch(raw, topic, epoch)
    assert (result.error_code, result.leader_epoch, result.end_offset) == (ErrorCode.NONE, epoch, 2)


def test_an_epoch_that_never_was_has_no_end(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a"]))
    epoch = describe(raw, topic).partitions[0].leader_epoch
    result = end_of_epoch(raw, topic, epoch + 5)
    assert (result.error_code, result.leader_epoch, result.end_offset) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deleting_records_moves_the_start_of_the_log(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic)
    for value in (b"a", b"b", b"c"):
        produce(raw, topic, batch_of([value]))
    result = delete_before(raw, topic, 2, version=version)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)
    assert list_offset(raw, topic, EARLIEST).offset == 2
    assert [record.value for record in fetch(raw, topic, 2)] == [b"c"]
    assert try_fetch(raw, fetch_request(topic, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert try_fetch(raw, fetch_request(topic, 2)).log_start_offset == 2


def test_minus_one_deletes_up_to_the_high_watermark(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b"]))
    assert delete_before(raw, topic, -1).low_watermark == 2
    assert values_in(raw, topic) == []
    assert produce(raw, topic, batch_of([b"c"])) == 2
    assert values_in(raw, topic) == [b"c"]


def test_deleting_in_the_middle_of_a_batch_hides_its_first_records(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b", b"c"]))
    assert delete_before(raw, topic, 1).low_watermark == 1
    assert list_offset(raw, topic, EARLIEST).offset == 1
    assert values_in(raw, topic) == [b"b", b"c"]
    assert list_offset(raw, topic, 0).offset in {0, 1}


def test_deleting_what_is_gone_already_is_no_error(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b"]))
    delete_before(raw, topic, 2)
    result = delete_before(raw, topic, 1)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("offset", [3, 2**40, -2])
def test_deleting_beyond_the_high_watermark_is_out_of_range(raw: RawClient, topic: str, offset: int) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a", b"b"]))
    result = delete_before(raw, topic, offset)
    assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"cleanup.policy": "compact"})
    produce(raw, topic, batch_of([b"a"]))
    assert delete_before(raw, topic, 1).error_code == ErrorCode.POLICY_VIOLATION
    create_topic(raw, f"{topic}-both", configs={"cleanup.policy": "compact,delete"})
    produce(raw, f"{topic}-both", batch_of([b"a"]))
    assert delete_before(raw, f"{topic}-both", 1).error_code == ErrorCode.NONE
