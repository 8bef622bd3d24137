"""Cutting the end off, starting over, and deleting from the start."""

from __future__ import annotations

import errno

import pytest
from storage_cases import (
    NOW_MS,
    TOPIC_ID,
    TP,
    Disk,
    append,
    append_values,
    batch_of,
    produce,
    read_headers,
    read_values,
)

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.storage.epochs import EpochStart
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

SMALL = TopicConfig(segment_bytes=500, index_interval_bytes=100)


@pytest.mark.parametrize("target", range(13))
def test_a_cut_leaves_what_was_before(disk: Disk, target: int) -> None:
    log = disk.open_log(SMALL)
    for at in range(12):
        append_values(log, b"%d" % at + b"x" * 100, timestamp=NOW_MS + at)
    log.flush()
    log.truncate_to(target)
    assert log.log_end_offset == target
    assert log.flushed_offset == target
    assert [each.base_offset for each in read_headers(log)] == list(range(target))
    assert append_values(log, b"new").base_offset == target
    assert read_values(log)[-1] == b"new"
    names = disk.files(".log")
    assert all(int(name[:20]) <= target for name in names)
    found = log.offset_for_timestamp(NOW_MS + 5)
    assert (found.offset if found else None) == (5 if target > 5 else None)


def test_a_cut_inside_a_batch_takes_the_whole_batch(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"a", b"b")
    append_values(log, b"c", b"d", b"e")
    log.truncate_to(3)
    assert log.log_end_offset == 2
    assert read_values(log) == [b"a", b"b"]


def test_cutting_at_or_behind_the_end_changes_nothing(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"a")
    log.truncate_to(1)
    log.truncate_to(5)
    assert log.log_end_offset == 1


def test_a_cut_takes_epochs_and_producers_along(disk: Disk) -> None:
    log = disk.open_log(SMALL)
    for at in range(6):
        append(log, batch_of([b"x" * 150], producer_id=7, epoch=0, sequence=at), leader_epoch=at // 2)
    log.truncate_to(3)
    assert log.epochs.starts == (EpochStart(0, 0), EpochStart(1, 2))
    for at in range(3):
        assert append(log, batch_of([b"y"], producer_id=7, epoch=0, sequence=at)).duplicate
    assert not append(log, batch_of([b"y"], producer_id=7, epoch=0, sequence=3), leader_epoch=1).duplicate


def test_what_replaces_the_cut_part_survives_a_power_cut(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    """The segments that were taken out must not come back behind the new records."""
    store = forgetful.open_store(SMALL)
    log = store.create(TP, TOPIC_ID, SMALL)
    for at in range(10):
        append_values(log, b"old %d" % at + b"x" * 150)
    log.flush()
    store.write_checkpoints()
    log.truncate_to(3)
    append(log, batch_of([b"new"]), leader_epoch=1)
    log.flush()
    memory.crash(Forget.EVERYTHING)
    reopened = forgetful.open_log(SMALL)
    assert reopened.log_end_offset == 4
    assert read_values(reopened)[-1] == b"new"
    assert reopened.last_leader_epoch == 1


def test_the_recovery_point_on_disk_is_lowered_before_the_cut(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store(SMALL)
    log = store.create(TP, TOPIC_ID, SMALL)
    for at in range(10):
        append_values(log, b"old %d" % at + b"x" * 150)
    log.flush()
    store.write_checkpoints()
    stale = store.prepare_checkpoints()
    log.truncate_to(3)
    stale.write()
    file = memory.open("/data/recovery-point-offset-checkpoint")
    assert file.pread(99, 0) == b"0\n1\norders 0 3\n", "figures from before the cut must not be written after it"


def test_a_cut_that_fails_takes_the_log_out_of_service(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    log = forgetful.open_log(SMALL)
    for at in range(4):
        append_values(log, b"%d" % at + b"x" * 150)
    log.flush()
    memory.fail("truncate", errno.EIO)
    with pytest.raises(BrokerError):
        log.truncate_to(1)
    assert log.failure is not None
    with pytest.raises(BrokerError):
        append_values(log, b"no")


def test_starting_over_forgets_everything(disk: Disk) -> None:
    log = disk.open_log(SMALL)
    for at in range(4):
        produce(log, at * 2, 2)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (100, 100, 100)
    assert log.size_bytes == 0
    assert log.last_leader_epoch == -1
    assert disk.files(".log") == [f"{100:020d}.log"]
    assert disk.files(".snapshot") == []
    assert produce(log, 55).base_offset == 100


@pytest.mark.parametrize("forget", list(Forget))
def test_a_log_that_started_over_goes_on_there_after_a_crash(
    forgetful: Disk, memory: ForgetfulFilesystem, forget: Forget
) -> None:
    store = forgetful.open_store(SMALL)
    log = store.create(TP, TOPIC_ID, SMALL)
    append_values(log, b"a")
    log.flush()
    store.write_checkpoints()
    log.truncate_fully_and_start_at(100)
    memory.crash(forget)
    reopened = forgetful.open_log(SMALL)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (100, 100)


def test_cutting_to_or_before_the_log_start_starts_over_there(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"a", b"b", b"c", b"d")
    log.flush()
    log.advance_log_start(2)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2), "the batch is gone, and deleted records with it"
    append_values(log, b"x")
    log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


# -- deleting records ---------------------------------------------------------------------------------------------


def test_the_log_start_moves_into_the_middle_of_a_segment(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"a", b"b")
    append_values(log, b"c", b"d")
    log.flush()
    log.advance_log_start(3)
    assert log.log_start_offset == 3
    assert read_values(log) == [b"d"]
    log.advance_log_start(1)
    assert log.log_start_offset == 3, "it never goes back"


@pytest.mark.parametrize("offset", [-1, 5])
def test_records_that_do_not_exist_cannot_be_deleted(disk: Disk, offset: int) -> None:
    log = disk.open_log()
    append_values(log, b"a", b"b", b"c", b"d")
    with pytest.raises(BrokerError) as refused:
        log.advance_log_start(offset)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("forget", list(Forget))
def test_deleted_records_stay_deleted_whatever_happens(
    forgetful: Disk, memory: ForgetfulFilesystem, forget: Forget
) -> None:
    log = forgetful.open_log()
    for value in (b"a", b"b", b"c"):
        append(log, batch_of([value]), leader_epoch=1)
    log.flush()
    log.advance_log_start(2)
    memory.crash(forget)
    reopened = forgetful.open_log()
    assert reopened.log_start_offset == 2
    assert read_values(reopened) == [b"c"]
    assert reopened.epochs.starts == (EpochStart(1, 2),)


def test_a_log_start_beyond_the_end_empties_the_log(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    """Records were deleted that had never been flushed, and then the power failed."""
    log = forgetful.open_log()
    append_values(log, b"a")
    log.flush()
    append_values(log, b"b")
    append_values(log, b"c")
    log.advance_log_start(2)
    memory.crash(Forget.EVERYTHING)
    reopened = forgetful.open_log()
    assert (reopened.log_start_offset, reopened.log_end_offset) == (2, 2)
    assert append_values(reopened, b"d").base_offset == 2
    reopened.flush()
    memory.crash(Forget.EVERYTHING)
    assert read_values(forgetful.open_log()) == [b"d"]


def test_a_deletion_that_cannot_be_written_down_does_not_happen(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    log = forgetful.open_log()
    append_values(log, b"a", b"b")
    log.flush()
    memory.fail("write", errno.ENOSPC)
    with pytest.raises(BrokerError) as refused:
        log.advance_log_start(1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_start_offset == 0
    log.advance_log_start(1)
    assert log.log_start_offset == 1


@pytest.mark.parametrize("seed", range(30))
def test_after_a_crash_nothing_that_was_cut_lies_between_what_came_in_its_place(seed: int) -> None:
    fs = ForgetfulFilesystem(seed, page_bytes=64)
    disk = Disk(fs, "/data")
    log = disk.open_log()
    for at in range(8):
        append(log, batch_of([b"old %d" % at]), leader_epoch=1)
    log.flush()
    log.truncate_to(2)
    data = b"".join(batch_of([b"new"], base_offset=at, leader_epoch=2) for at in range(2, 6))
    log.append_as_follower(data, NOW_MS)
    fs.crash(Forget.SOMETHING)
    epochs = [header.leader_epoch for header in read_headers(disk.open_log())]
    assert epochs == sorted(epochs)
    assert epochs[:2] == [1, 1]
    assert 1 not in epochs[2:]
