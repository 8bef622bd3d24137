"""Appending what a leader sends: kept as it is, checked all the same."""

from __future__ import annotations

import pytest
from storage_cases import (
    NOW_MS,
    TOPIC_ID,
    TP,
    Disk,
    append_values,
    batch_of,
    produce,
    read_bytes,
    read_headers,
    read_values,
)

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.storage.epochs import EpochStart
from tidelog.types import TopicPartition


def stored(*bases: int, leader_epoch: int = 3, size: int = 100) -> bytes:
    return b"".join(batch_of([b"x" * size], base_offset=base, leader_epoch=leader_epoch) for base in bases)


def test_batches_are_kept_byte_for_byte(disk: Disk) -> None:
    log = disk.open_log()
    data = stored(0, 1, leader_epoch=3) + stored(2, leader_epoch=5)
    assert log.append_as_follower(data, NOW_MS) == (0, 3, len(data))
    assert read_bytes(log, 0) == data
    assert log.log_end_offset == 3
    assert log.epochs.starts == (EpochStart(3, 0), EpochStart(5, 2))
    log.flush()
    assert log.flushed_offset == 3


def test_a_leader_and_its_follower_have_the_same_files(disk: Disk) -> None:
    config = TopicConfig(segment_bytes=1000, index_interval_bytes=200)
    leader = disk.open_store(config)
    log = leader.create(TP, TOPIC_ID, config)
    copy = leader.create(TopicPartition("copy", 0), TOPIC_ID, config)
    for at in range(20):
        append_values(log, b"%d" % at, b"x" * 50, timestamp=NOW_MS + at)
    at = 0
    while data := read_bytes(log, at, 700):
        at = copy.append_as_follower(data, NOW_MS).next_offset
    leader.close()
    names = [name for name in disk.files() if not name.endswith("metadata")]
    for name in names:
        mirrored = disk.fs.open(f"{disk.root}/copy-0/{name}")
        assert mirrored.pread(mirrored.size(), 0) == disk.content(name), name


def test_a_cut_off_last_batch_is_left_for_the_next_fetch(disk: Disk) -> None:
    log = disk.open_log()
    data = stored(0, 1)
    done = log.append_as_follower(data[:-1], NOW_MS)
    assert (done.first_offset, done.next_offset) == (0, 1)
    assert done.size_bytes == len(stored(0))
    assert log.append_as_follower(data[done.size_bytes :], NOW_MS).next_offset == 2
    assert log.append_as_follower(data[:40], NOW_MS) == (-1, 2, 0)
    assert log.append_as_follower(b"", NOW_MS) == (-1, 2, 0)


def test_many_batches_are_spread_over_segments(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_bytes=500))
    log.append_as_follower(stored(*range(12)), NOW_MS)
    assert len(log.segments) == 6
    assert [each.base_offset for each in read_headers(log)] == list(range(12))


def test_damaged_batches_are_refused_whole(disk: Disk) -> None:
    log = disk.open_log()
    data = bytearray(stored(0, 1, 2))
    data[-10] ^= 1
    with pytest.raises(BrokerError) as refused:
        log.append_as_follower(data, NOW_MS)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("bases", [(1,), (3, 2), (3, 3)])
def test_offsets_that_go_back_are_refused(disk: Disk, bases: tuple[int, ...]) -> None:
    log = disk.open_log()
    log.append_as_follower(stored(0, 1), NOW_MS)
    with pytest.raises(BrokerError) as refused:
        log.append_as_follower(stored(*bases), NOW_MS)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_end_offset == 2


def test_gaps_of_a_compacted_leader_are_kept(disk: Disk) -> None:
    log = disk.open_log()
    log.append_as_follower(stored(4, 9), NOW_MS)
    assert log.log_end_offset == 10
    assert len(read_values(log)) == 2


def test_producers_are_remembered_without_being_judged(disk: Disk) -> None:
    log = disk.open_log()
    for sequence, base in ((5, 0), (17, 1)):
        batch = batch_of([b"v"], base_offset=base, leader_epoch=0, producer_id=7, epoch=0, sequence=sequence)
        log.append_as_follower(batch, NOW_MS)
    assert produce(log, 17).duplicate
    assert not produce(log, 18).duplicate


def test_a_log_can_begin_with_a_batch_whose_first_records_were_deleted(disk: Disk) -> None:
    log = disk.open_log()
    log.truncate_fully_and_start_at(7)
    batch = batch_of([b"%d" % at for at in range(5, 10)], base_offset=5, leader_epoch=0)
    log.append_as_follower(batch, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (7, 10)
    assert read_values(log) == [b"7", b"8", b"9"]


def test_a_batch_entirely_before_an_empty_log_is_refused(disk: Disk) -> None:
    log = disk.open_log()
    log.truncate_fully_and_start_at(7)
    with pytest.raises(BrokerError) as refused:
        log.append_as_follower(stored(5), NOW_MS)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
