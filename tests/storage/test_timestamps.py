"""Finding records by time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_cases import TOPIC_ID, TP, Disk, append, batch_of

from tidelog.config.topic import TopicConfig
from tidelog.records.compression import Codec
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.storage.timestamps import TimestampedOffset
from tidelog.testing.forgetful_fs import ForgetfulFilesystem

SMALL = TopicConfig(segment_bytes=600, index_interval_bytes=100, segment_ms=2**62)


def test_an_empty_log_has_no_times(disk: Disk) -> None:
    log = disk.open_log()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_the_first_record_as_late_as_the_target_is_found_within_its_batch(disk: Disk, codec: Codec) -> None:
    log = disk.open_log()
    append(log, batch_of([b"a", b"b", b"c"], timestamps=[100, 105, 110], codec=codec), leader_epoch=2)
    append(log, batch_of([b"d", b"e"], timestamps=[115, 120], codec=codec), leader_epoch=3)
    assert log.offset_for_timestamp(0) == TimestampedOffset(0, 100, 2)
    assert log.offset_for_timestamp(105) == TimestampedOffset(1, 105, 2)
    assert log.offset_for_timestamp(106) == TimestampedOffset(2, 110, 2)
    assert log.offset_for_timestamp(111) == TimestampedOffset(3, 115, 3)
    assert log.offset_for_timestamp(121) is None
    assert log.max_timestamp_offset() == TimestampedOffset(4, 120, 3)


def test_order_in_the_log_counts_not_order_in_time(disk: Disk) -> None:
    log = disk.open_log()
    for timestamp in (100, 300, 50, 200, 300):
        append(log, batch_of([b"v"], timestamp=timestamp))
    assert log.offset_for_timestamp(60) == TimestampedOffset(0, 100, 0)
    assert log.offset_for_timestamp(150) == TimestampedOffset(1, 300, 0)
    assert log.max_timestamp_offset() == TimestampedOffset(1, 300, 0), "the first of the largest"


def test_deleted_records_are_not_found(disk: Disk) -> None:
    log = disk.open_log()
    append(log, batch_of([b"a", b"b", b"c"], timestamps=[500, 10, 20]))
    append(log, batch_of([b"d"], timestamp=30))
    log.advance_log_start(1)
    assert log.offset_for_timestamp(0) == TimestampedOffset(1, 10, 0)
    assert log.offset_for_timestamp(25) == TimestampedOffset(3, 30, 0)


def test_log_append_time_is_the_time_of_all_records_of_a_batch(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(message_timestamp_type="LogAppendTime"))
    append(log, batch_of([b"a", b"b"], timestamps=[1, 2]), now_ms=1000)
    append(log, batch_of([b"c"], timestamps=[3]), now_ms=2000)
    assert log.offset_for_timestamp(2) == TimestampedOffset(0, 1000, 0)
    assert log.offset_for_timestamp(1001) == TimestampedOffset(2, 2000, 0)


@settings(max_examples=80, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(-1, 60), min_size=1, max_size=3), min_size=1, max_size=30),
    log_start=st.integers(0, 20),
    restart=st.booleans(),
)
def test_every_search_agrees_with_reading_everything(
    batches: list[list[int]], log_start: int, *, restart: bool
) -> None:
    disk = Disk(ForgetfulFilesystem(), "/data")
    store = disk.open_store(SMALL)
    log = store.create(TP, TOPIC_ID, SMALL)
    for timestamps in batches:
        append(log, batch_of([b"v"] * len(timestamps), timestamps=timestamps))
    log.advance_log_start(min(log_start, log.log_end_offset))
    records = [
        record
        for segment in log.segments
        for _, batch in iter_batches(segment.file.get().pread(segment.size, 0))
        for record in iter_records(batch)
        if record.offset >= log.log_start_offset
    ]
    if restart:
        store.close()
        log = disk.open_log(SMALL)
    for target in range(62):
        found = log.offset_for_timestamp(target)
        expected = next((record for record in records if record.timestamp >= target), None)
        assert _pair(found) == (None if expected is None else (expected.offset, expected.timestamp))
    best = max((record.timestamp for record in records), default=-1)
    first: Record | None = next((record for record in records if record.timestamp == best >= 0), None)
    assert _pair(log.max_timestamp_offset()) == (None if first is None else (first.offset, first.timestamp))


def _pair(found: TimestampedOffset | None) -> tuple[int, int] | None:
    return None if found is None else (found.offset, found.timestamp)
