"""Appending: offsets, stamping, rolling, and what happens when the disk does not want to."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

import pytest
from storage_cases import (
    ALL,
    NOW_MS,
    Disk,
    append,
    append_values,
    batch_of,
    read_bytes,
    read_headers,
    read_values,
)

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import crc_ok, peek
from tidelog.records.record import iter_records

if TYPE_CHECKING:
    from tidelog.storage.log import Log
    from tidelog.testing.forgetful_fs import ForgetfulFilesystem


def test_offsets_follow_the_last_delta_and_the_leader_stamps_its_epoch(disk: Disk) -> None:
    log = disk.open_log()
    assert append(log, batch_of([b"a", b"b", b"c"]), leader_epoch=5)[:2] == (0, 2)
    assert append(log, batch_of([b"d"]), leader_epoch=6)[:2] == (3, 3)
    assert log.log_end_offset == 4
    first, second = read_headers(log)
    assert (first.base_offset, first.last_offset, first.leader_epoch) == (0, 2, 5)
    assert (second.base_offset, second.last_offset, second.leader_epoch) == (3, 3, 6)
    assert log.last_leader_epoch == 6


def test_bytes_are_stored_as_sent_but_for_offset_and_epoch(disk: Disk) -> None:
    log = disk.open_log()
    sent = bytes(batch_of([b"a" * 100]))
    append(log, memoryview(bytearray(sent)), leader_epoch=9)
    stored = read_bytes(log, 0)
    assert stored[8:12] == sent[8:12]
    assert stored[16:] == sent[16:], "the checksum and all that it covers are untouched"
    assert disk.content("00000000000000000000.log") == stored


def test_create_time_answers_no_append_time(disk: Disk) -> None:
    appended = append_values(disk.open_log(), b"a")
    assert appended.append_time_ms == -1
    assert not appended.duplicate


def test_log_append_time_stamps_the_batch_and_redoes_its_checksum(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(message_timestamp_type="LogAppendTime"))
    appended = append(log, batch_of([b"a", b"b"], timestamp=5), now_ms=NOW_MS + 7)
    assert appended.append_time_ms == NOW_MS + 7
    stored = read_bytes(log, 0)
    header = peek(stored)
    assert header.log_append_time
    assert header.max_timestamp == NOW_MS + 7
    assert crc_ok(stored, 0, len(stored))
    assert {record.timestamp for record in iter_records(stored)} == {NOW_MS + 7}


def test_a_batch_larger_than_a_segment_is_refused(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_bytes=1000))
    with pytest.raises(BrokerError) as refused:
        append_values(log, b"x" * 1000)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0
    append_values(log, b"small")


def test_a_full_segment_is_followed_by_one_named_after_its_first_offset(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_bytes=1000))
    for _ in range(5):
        append_values(log, b"x" * 400, b"y")
    assert disk.files(".log") == [f"{offset:020d}.log" for offset in (0, 4, 8)]
    assert disk.files(".index") == [f"{offset:020d}.index" for offset in (0, 4)]
    assert disk.files(".timeindex") == [f"{offset:020d}.timeindex" for offset in (0, 4)]
    assert disk.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (4, 8)]
    assert len(read_values(log)) == 10


def test_a_segment_takes_no_records_that_are_segment_ms_younger_than_its_first(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_ms=1000))
    append_values(log, b"a", timestamp=NOW_MS)
    append_values(log, b"b", timestamp=NOW_MS + 1000)
    append_values(log, b"c", timestamp=NOW_MS + 1001)
    assert [each.base_offset for each in log.segments] == [0, 2]


def test_without_timestamps_a_segment_ages_by_the_clock(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_ms=1000))
    append(log, batch_of([b"a"], timestamp=-1, step_ms=0), now_ms=NOW_MS)
    append(log, batch_of([b"b"], timestamp=-1, step_ms=0), now_ms=NOW_MS + 1000)
    append(log, batch_of([b"c"], timestamp=-1, step_ms=0), now_ms=NOW_MS + 1001)
    assert [each.base_offset for each in log.segments] == [0, 2]


def test_a_segment_that_nobody_writes_to_is_due_by_the_clock(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_ms=1000))
    assert not log.needs_roll(NOW_MS + 10_000), "an empty one has nothing to close"
    append_values(log, b"a")
    assert not log.needs_roll(NOW_MS + 1000)
    assert log.needs_roll(NOW_MS + 1001)
    log.roll(NOW_MS + 1001)
    assert not log.needs_roll(NOW_MS + 1002)
    assert log.roll(NOW_MS + 1002) is log.segments.active, "rolling an empty segment changes nothing"
    assert len(log.segments) == 2


def test_a_full_index_ends_a_segment(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(index_interval_bytes=0, segment_index_bytes=36))
    for at in range(10):
        append_values(log, b"x", timestamp=NOW_MS + at)
    # Three time index entries of twelve bytes fit; the first batch of a segment has none.
    assert [each.base_offset for each in log.segments] == [0, 4, 8]


def test_new_settings_apply_to_the_next_batch(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"x" * 500)
    log.config = TopicConfig(segment_bytes=700)
    append_values(log, b"y" * 500)
    assert [each.base_offset for each in log.segments] == [0, 1]


def test_a_short_write_is_completed(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    log = forgetful.open_log()
    append_values(log, b"a" * 300)
    memory.shorten_write(100)
    append_values(log, b"b" * 300)
    assert read_values(log) == [b"a" * 300, b"b" * 300]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_is_cut_back_and_the_log_goes_on(
    forgetful: Disk, memory: ForgetfulFilesystem, error: int
) -> None:
    log = forgetful.open_log()
    append_values(log, b"a")
    size = log.size_bytes
    memory.shorten_write(30)
    memory.fail("write", error, after=1)
    with pytest.raises(BrokerError) as refused:
        append_values(log, b"lost" * 100)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is None
    assert (log.log_end_offset, log.size_bytes) == (1, size)
    assert len(forgetful.content("00000000000000000000.log")) == size, "no half batch is left behind"
    append_values(log, b"b")
    assert read_values(log) == [b"a", b"b"]


def test_a_torn_write_that_cannot_be_cut_back_takes_the_log_out_of_service(
    forgetful: Disk, memory: ForgetfulFilesystem
) -> None:
    log = forgetful.open_log()
    append_values(log, b"a")
    log.flush()
    memory.shorten_write(30)
    memory.fail("write", errno.EIO, after=1)
    memory.fail("truncate", errno.EIO)
    with pytest.raises(BrokerError):
        append_values(log, b"torn")
    assert log.failure is not None
    with pytest.raises(BrokerError) as refused:
        append_values(log, b"b")
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [record.value for record in iter_records(read_bytes(log, 0))] == [b"a"], "what is flushed can still be read"


@pytest.mark.parametrize("operation", ["write", "open", "create"])
@pytest.mark.parametrize("after", range(6))
def test_a_full_disk_while_rolling_leaves_the_log_usable(
    forgetful: Disk, memory: ForgetfulFilesystem, operation: str, after: int
) -> None:
    log = forgetful.open_log(TopicConfig(segment_bytes=500))
    append_values(log, b"a" * 300)
    memory.fail(operation, errno.ENOSPC, after)
    stored = [b"a" * 300]
    for _ in range(3):
        try:
            append_values(log, b"b" * 300)
            stored.append(b"b" * 300)
        except BrokerError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017 - it may also succeed
    assert len(stored) >= 3, "only one attempt can have failed"
    assert read_values(log) == stored
    log.flush()
    memory.crash()
    assert read_values(forgetful.open_log()) == stored


def test_an_offset_that_no_index_could_hold_starts_a_new_segment(disk: Disk) -> None:
    log = disk.open_log()
    log.append_as_follower(batch_of([b"a"], base_offset=0, leader_epoch=0), NOW_MS)
    log.append_as_follower(batch_of([b"b"], base_offset=2**31 - 1, leader_epoch=0), NOW_MS)
    log.append_as_follower(batch_of([b"c"], base_offset=2**31 + 5, leader_epoch=0), NOW_MS)
    log.append_as_follower(batch_of([b"d"], base_offset=2**40, leader_epoch=0), NOW_MS)
    # At the log end, so that recovery can tell a gap from a loss; only a gap too wide for that is skipped.
    assert [each.base_offset for each in log.segments] == [0, 2**31, 2**40]
    assert read_values(log) == [b"a", b"b", b"c", b"d"]


def test_an_empty_segment_makes_way_for_a_far_offset(disk: Disk) -> None:
    log = disk.open_log()
    log.append_as_follower(batch_of([b"a"], base_offset=2**40, leader_epoch=0), NOW_MS)
    log.roll(NOW_MS)
    log.append_as_follower(batch_of([b"b"], base_offset=2**41, leader_epoch=0), NOW_MS)
    assert [each.base_offset for each in log.segments] == [2**40, 2**41]
    assert disk.files(".log") == [f"{2**40:020d}.log", f"{2**41:020d}.log"]
    assert read_values(log) == [b"a", b"b"]


def test_the_partition_names_its_topic(disk: Disk) -> None:
    disk.open_log()
    assert disk.content("partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"


def test_index_files_are_what_kafka_would_write(disk: Disk) -> None:
    """Entry: last offset of a batch, position where it starts; one after more than the interval since the last."""
    log = disk.open_log(TopicConfig(index_interval_bytes=300))
    sizes = [append_and_measure(log, at) for at in range(6)]
    log.close()
    # The first batch comes before any entry; 300 bytes are exceeded after two batches of about 180 bytes.
    positions = [sum(sizes[:at]) for at in range(6)]
    entries = [(2 * 2 + 1, positions[2]), (4 * 2 + 1, positions[4])]
    assert disk.content("00000000000000000000.index") == b"".join(struct.pack(">ii", *each) for each in entries)
    # The largest timestamp so far and its offset, at each index entry and when the segment is closed.
    times = [(NOW_MS + 20 + 1, 5), (NOW_MS + 40 + 1, 9), (NOW_MS + 50 + 1, 11)]
    assert disk.content("00000000000000000000.timeindex") == b"".join(struct.pack(">qi", *each) for each in times)


def append_and_measure(log: Log, at: int) -> int:
    before = log.size_bytes
    append_values(log, b"x" * 50, b"y" * 50, timestamp=NOW_MS + at * 10)
    return log.size_bytes - before


def test_reading_nothing_is_none(disk: Disk) -> None:
    log = disk.open_log()
    assert log.read(0, ALL, ALL, True) is None
