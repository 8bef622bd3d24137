"""Opening after a clean stop and after a crash, damage by damage."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

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
from tidelog.records.header import crc_ok, peek
from tidelog.storage.epochs import EpochStart
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log

SMALL = TopicConfig(segment_bytes=500, index_interval_bytes=100)
FIRST = "00000000000000000000"


def killed(disk: Disk) -> None:
    """The process ends without a word; the kernel keeps what it wrote."""
    assert isinstance(disk.fs, ForgetfulFilesystem)
    disk.fs.crash(Forget.NOTHING)


def corrupt(disk: Disk, name: str, at: int) -> None:
    content = bytearray(disk.content(name))
    content[at] ^= 0xFF
    disk.overwrite(name, bytes(content))


def fill(log: Log, count: int) -> list[bytes]:
    values = [b"%d " % at + b"x" * 150 for at in range(count)]
    for value in values:
        append_values(log, value)
    return values


# -- after a clean stop -------------------------------------------------------------------------------------------


def test_a_clean_start_reads_no_segment(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store(SMALL)
    log = store.create(TP, TOPIC_ID, SMALL)
    values = fill(log, 9)
    produce(log, 0, 3)
    store.close()
    memory.opened.clear()
    reopened = forgetful.open_store(SMALL).logs[TP]
    assert not [path for path in memory.opened if path.endswith((".log", ".index", ".timeindex"))]
    assert reopened.log_end_offset == 12
    assert reopened.flushed_offset == 12
    assert read_values(reopened)[:9] == values
    assert produce(reopened, 0, 3).duplicate


def test_the_marker_of_a_clean_stop_is_good_for_one_start(disk: Disk) -> None:
    store = disk.open_store()
    store.close()
    assert disk.fs.exists(f"{disk.root}/.kafka_cleanshutdown")
    disk.open_store()
    assert not disk.fs.exists(f"{disk.root}/.kafka_cleanshutdown")


def test_a_clean_stop_survives_a_power_cut_right_after(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store(SMALL)
    log = store.create(TP, TOPIC_ID, SMALL)
    values = fill(log, 5)
    log.advance_log_start(2)
    store.close()
    memory.crash(Forget.EVERYTHING)
    assert memory.exists("/data/.kafka_cleanshutdown")
    reopened = forgetful.open_log(SMALL)
    assert reopened.log_start_offset == 2
    assert read_values(reopened) == values[2:]
    assert reopened.topic_id == TOPIC_ID


def test_a_log_that_does_not_end_where_the_clean_stop_said_is_recovered(forgetful: Disk) -> None:
    store = forgetful.open_store()
    fill(store.create(TP, TOPIC_ID, TopicConfig()), 3)
    store.close()
    forgetful.overwrite(f"{FIRST}.log", b"")
    reopened = forgetful.open_log()
    assert (reopened.log_end_offset, reopened.size_bytes) == (0, 0)


# -- torn and damaged tails ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"\0" * 200, b"garbage", bytes(batch_of([b"torn" * 50]))[:100]])
def test_what_follows_the_last_whole_batch_is_cut(
    forgetful: Disk, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = forgetful.open_log()
    values = fill(log, 3)
    log.flush()
    whole = forgetful.content(f"{FIRST}.log")
    killed(forgetful)
    forgetful.overwrite(f"{FIRST}.log", whole + tail)
    with caplog.at_level(logging.WARNING):
        reopened = forgetful.open_log()
    assert read_values(reopened) == values
    assert forgetful.content(f"{FIRST}.log") == whole
    assert f"cutting {len(tail)} bytes after offset 2" in caplog.text
    append_values(reopened, b"next")
    assert read_values(reopened) == [*values, b"next"]


def test_a_batch_with_a_bad_checksum_ends_the_log(forgetful: Disk) -> None:
    log = forgetful.open_log()
    values = fill(log, 4)
    killed(forgetful)
    size = len(forgetful.content(f"{FIRST}.log")) // 4
    corrupt(forgetful, f"{FIRST}.log", 2 * size + 100)
    assert read_values(forgetful.open_log()) == values[:2]


def test_segments_after_a_damaged_one_are_dropped_and_it_is_said(
    forgetful: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = forgetful.open_log(SMALL)
    values = fill(log, 8)
    bases = [each.base_offset for each in log.segments]
    assert bases == [0, 2, 4, 6]
    killed(forgetful)
    corrupt(forgetful, f"{2:020d}.log", 300)
    reopened = forgetful.open_log(SMALL)
    assert read_values(reopened) == values[:3]
    dropped = [each for each in caplog.records if each.levelno == logging.ERROR and "dropping it" in each.getMessage()]
    assert len(dropped) == 2
    assert forgetful.files(".log") == [f"{base:020d}.log" for base in (0, 2)]
    assert forgetful.files(".index") == [f"{base:020d}.index" for base in (0, 2)]
    assert forgetful.files(".snapshot") == [f"{2:020d}.snapshot"]


def test_a_segment_that_lost_its_end_at_a_batch_is_not_continued_by_the_next(forgetful: Disk) -> None:
    log = forgetful.open_log(SMALL)
    values = fill(log, 6)
    killed(forgetful)
    content = forgetful.content(f"{2:020d}.log")
    forgetful.overwrite(f"{2:020d}.log", content[: len(content) // 2])
    reopened = forgetful.open_log(SMALL)
    assert read_values(reopened) == values[:3]
    assert reopened.log_end_offset == 3


def test_offsets_that_go_back_are_damage(forgetful: Disk) -> None:
    log = forgetful.open_log()
    append_values(log, b"a", b"b")
    append_values(log, b"c")
    killed(forgetful)
    content = forgetful.content(f"{FIRST}.log")
    size = peek(content).size
    forgetful.overwrite(f"{FIRST}.log", content[:size] + bytes(8) + content[size + 8 :])
    assert read_values(forgetful.open_log()) == [b"a", b"b"]


# -- damage below the recovery point ------------------------------------------------------------------------------


def test_a_bad_checksum_below_the_recovery_point_is_kept_and_said_loudly(
    forgetful: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    fill(log, 4)
    log.flush()
    store.write_checkpoints()
    killed(forgetful)
    size = len(forgetful.content(f"{FIRST}.log")) // 4
    corrupt(forgetful, f"{FIRST}.log", size + 100)
    reopened = forgetful.open_log()
    assert reopened.log_end_offset == 4, "the acknowledged records behind it are not its victims"
    assert [each.base_offset for each in read_headers(reopened)] == [0, 1, 2, 3]
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "offset 1" in errors[0]
    assert "below the recovery point" in errors[0]


def test_missing_flushed_records_are_said_loudly(forgetful: Disk, caplog: pytest.LogCaptureFixture) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    values = fill(log, 4)
    log.flush()
    store.write_checkpoints()
    killed(forgetful)
    content = forgetful.content(f"{FIRST}.log")
    forgetful.overwrite(f"{FIRST}.log", content[: len(content) // 2 + 10])
    assert read_values(forgetful.open_log()) == values[:2]
    text = "\n".join(each.getMessage() for each in caplog.records if each.levelno == logging.ERROR)
    assert "ends at offset 2, but was flushed up to 4" in text


def test_a_partition_whose_segments_are_gone_opens_empty_and_says_so(
    forgetful: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    fill(log, 4)
    store.close()
    forgetful.fs.remove(f"{forgetful.partition}/{FIRST}.log")
    reopened = forgetful.open_log()
    assert reopened.log_end_offset == 0
    assert "but was flushed up to 4" in caplog.text
    append_values(reopened, b"new")
    assert read_values(reopened) == [b"new"]


def test_segments_below_the_recovery_point_are_not_read(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store(SMALL)
    log = store.create(TP, TOPIC_ID, SMALL)
    fill(log, 9)
    log.flush()
    store.write_checkpoints()
    killed(forgetful)
    memory.opened.clear()
    forgetful.open_store(SMALL)
    opened = {path.rpartition("/")[2] for path in memory.opened if path.endswith(".log")}
    assert opened == {f"{8:020d}.log"}


# -- indexes, epochs, small files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [None, b"", b"\0" * 24, b"\xff" * 24, b"odd"])
def test_indexes_are_rebuilt_by_recovery(forgetful: Disk, suffix: str, damage: bytes | None) -> None:
    log = forgetful.open_log(SMALL)
    values = fill(log, 9)
    log.close()
    before = {name: forgetful.content(name) for name in forgetful.files(suffix)}
    killed(forgetful)
    for name in before:
        if damage is None:
            forgetful.fs.remove(f"{forgetful.partition}/{name}")
        else:
            forgetful.overwrite(name, damage)
    reopened = forgetful.open_log(SMALL)
    assert read_values(reopened) == values
    reopened.close()
    assert {name: forgetful.content(name) for name in forgetful.files(suffix)} == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [None, b"\0" * 24, b"\xff" * 24, b"odd"])
def test_damaged_indexes_of_old_segments_are_noticed_when_they_are_used(
    forgetful: Disk, suffix: str, damage: bytes | None
) -> None:
    store = forgetful.open_store(SMALL)
    values = fill(store.create(TP, TOPIC_ID, SMALL), 9)
    store.close()
    for name in forgetful.files(suffix):
        if damage is None:
            forgetful.fs.remove(f"{forgetful.partition}/{name}")
        else:
            forgetful.overwrite(name, damage)
    reopened = forgetful.open_log(SMALL)
    for offset, value in enumerate(values):
        assert read_values(reopened, offset)[0] == value
    found = reopened.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 0


def test_leader_epochs_are_rebuilt_from_the_batches(forgetful: Disk) -> None:
    log = forgetful.open_log(SMALL)
    for epoch in (1, 1, 1, 4, 4, 9):
        append(log, batch_of([b"x" * 150]), leader_epoch=epoch)
    starts = (EpochStart(1, 0), EpochStart(4, 3), EpochStart(9, 5))
    assert log.epochs.starts == starts
    killed(forgetful)
    assert forgetful.open_log(SMALL).epochs.starts == starts
    forgetful.overwrite("leader-epoch-checkpoint", b"nonsense")
    killed(forgetful)
    assert forgetful.open_log(SMALL).epochs.starts == starts
    assert forgetful.content("leader-epoch-checkpoint") == b"0\n3\n1 0\n4 3\n9 5\n"


def test_a_damaged_partition_metadata_leaves_the_topic_unknown(forgetful: Disk) -> None:
    forgetful.open_log()
    killed(forgetful)
    forgetful.overwrite("partition.metadata", b"version: 0\ntopic_id: short\n")
    assert forgetful.open_log().topic_id == bytes(16)


def test_remains_of_interrupted_work_are_removed(forgetful: Disk) -> None:
    log = forgetful.open_log()
    append_values(log, b"a")
    killed(forgetful)
    for name in ("x.tmp", f"{FIRST}.log.deleted", f"{7:020d}.index", f"{7:020d}.timeindex", f"{9:020d}.log.cleaned"):
        forgetful.overwrite(name, b"rest")
    forgetful.overwrite("note.txt", b"somebody's")
    forgetful.open_log()
    assert set(forgetful.files()) == {
        f"{FIRST}.log",
        f"{FIRST}.index",
        f"{FIRST}.timeindex",
        "leader-epoch-checkpoint",
        "note.txt",
        "partition.metadata",
    }


# -- producers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forget", [Forget.EVERYTHING, Forget.NOTHING])
def test_the_whole_window_of_five_survives_a_roll_and_a_crash(
    forgetful: Disk, memory: ForgetfulFilesystem, forget: Forget
) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    firsts = [produce(log, sequence, 2) for sequence in range(0, 14, 2)]
    log.roll(NOW_MS)
    append_values(log, b"somebody else's")
    log.flush()
    store.write_checkpoints()
    memory.crash(forget)
    reopened = forgetful.open_log()
    for at, sequence in list(enumerate(range(0, 14, 2)))[-5:]:
        again = produce(reopened, sequence, 2)
        assert again.duplicate
        assert again[:2] == firsts[at][:2]
    with pytest.raises(BrokerError) as refused:
        produce(reopened, 2, 2)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sixth is forgotten, as it should be"
    assert not produce(reopened, 14, 2).duplicate


def test_a_damaged_snapshot_is_made_good_by_the_log(forgetful: Disk) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    for sequence in range(4):
        produce(log, sequence)
        if sequence % 2:
            log.roll(NOW_MS)
    log.flush()
    store.write_checkpoints()
    killed(forgetful)
    for name in forgetful.files(".snapshot"):
        corrupt(forgetful, name, 12)
    reopened = forgetful.open_log()
    for sequence in range(4):
        assert produce(reopened, sequence).duplicate


def test_a_snapshot_from_a_history_that_was_cut_away_is_not_believed(forgetful: Disk) -> None:
    log = forgetful.open_log()
    produce(log, 0)
    log.flush()
    for sequence in range(1, 5):
        produce(log, sequence)
    log.roll(NOW_MS)
    killed(forgetful)
    content = forgetful.content(f"{FIRST}.log")
    forgetful.overwrite(f"{FIRST}.log", content[: len(content) * 2 // 5])
    reopened = forgetful.open_log()
    assert reopened.log_end_offset == 2
    assert forgetful.files(".snapshot") == []
    assert not produce(reopened, 2).duplicate


def test_recovered_records_are_durable(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    """A killed process leaves its writes to the kernel; once recovered and served, they must not vanish."""
    log = forgetful.open_log(SMALL)
    append_values(log, b"first")
    log.flush()
    values = fill(log, 7)
    killed(forgetful)
    reopened = forgetful.open_log(SMALL)
    assert reopened.flushed_offset == 8
    assert read_values(reopened) == [b"first", *values]
    memory.crash(Forget.EVERYTHING)
    assert read_values(forgetful.open_log(SMALL)) == [b"first", *values]


def test_every_stored_batch_of_a_recovered_log_is_sound(forgetful: Disk) -> None:
    log = forgetful.open_log(SMALL)
    fill(log, 5)
    killed(forgetful)
    reopened = forgetful.open_log(SMALL)
    for segment in reopened.segments:
        data = segment.file.get().pread(segment.size, 0)
        position = 0
        while position < len(data):
            size = peek(data, position).size
            assert crc_ok(data, position, size)
            position += size
