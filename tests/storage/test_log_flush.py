"""Flushing: nothing counts as durable before it is, and what counts as durable stays."""

from __future__ import annotations

import errno
import threading

import pytest
from storage_cases import (
    ALL,
    NOW_MS,
    TOPIC_ID,
    TP,
    Disk,
    append,
    append_values,
    batch_of,
    produce,
    read_bytes,
    read_values,
)
from transaction_cases import end, write

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.control import Marker, MarkerType
from tidelog.storage.aborted import AbortedTransaction
from tidelog.testing.forgetful_fs import Forget, ForgetfulFile, ForgetfulFilesystem
from tidelog.types import TopicPartition


def test_a_flush_moves_the_flushed_offset_to_the_end(disk: Disk) -> None:
    log = disk.open_log()
    ticket = log.begin_flush()
    assert ticket is not None, "the new directory is not durable yet"
    ticket.sync()
    log.finish_flush(ticket)
    append_values(log, b"a", b"b")
    assert (log.flushed_offset, log.unflushed_messages) == (0, 2)
    log.flush()
    assert (log.flushed_offset, log.unflushed_messages) == (2, 0)
    assert log.begin_flush() is None


@pytest.mark.parametrize("rolled", [False, True])
def test_what_is_flushed_survives_a_power_cut(forgetful: Disk, memory: ForgetfulFilesystem, *, rolled: bool) -> None:
    log = forgetful.open_log()
    append_values(log, b"a")
    if rolled:
        log.roll(NOW_MS)
        append_values(log, b"b")
    log.flush()
    append_values(log, b"lost")
    memory.crash()
    assert read_values(forgetful.open_log()) == ([b"a", b"b"] if rolled else [b"a"])


@pytest.mark.parametrize("skipped", ["sync", "sync_dir"])
def test_without_any_of_its_syncs_a_flush_would_be_worth_nothing(
    forgetful: Disk, memory: ForgetfulFilesystem, skipped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The double is a judge one can trust: leaving out the syncs of content or of names loses the records."""
    log = forgetful.open_log()
    append_values(log, b"a")
    if skipped == "sync":
        monkeypatch.setattr(ForgetfulFile, "sync", lambda _file: None)
    else:
        monkeypatch.setattr(memory, "sync_dir", lambda _path: None)
    log.flush()
    assert log.flushed_offset == 1
    memory.crash()
    monkeypatch.undo()
    assert read_values(forgetful.open_log()) == []


def test_one_sync_serves_all_that_arrived_before_it_began(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"a")
    append_values(log, b"b")
    ticket = log.begin_flush()
    assert ticket is not None
    append_values(log, b"c")
    thread = threading.Thread(target=ticket.sync)
    thread.start()
    thread.join()
    assert log.flushed_offset == 0, "only the loop moves it"
    log.finish_flush(ticket)
    assert log.flushed_offset == 2
    assert log.unflushed_messages == 1


def test_a_flush_under_way_does_not_cover_a_later_roll(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    log = forgetful.open_log()
    append_values(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    append_values(log, b"b")
    log.roll(NOW_MS)
    append_values(log, b"c")
    ticket.sync()
    log.finish_flush(ticket)
    assert log.flushed_offset == 1
    assert log.needs_flush(NOW_MS), "the rolled segment waits for its sync"
    log.flush()
    memory.crash()
    assert read_values(forgetful.open_log()) == [b"a", b"b", b"c"]


def test_a_flush_under_way_does_not_count_after_a_cut(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"a")
    append_values(log, b"b")
    ticket = log.begin_flush()
    assert ticket is not None
    log.truncate_to(1)
    append_values(log, b"another b")
    ticket.sync()
    log.finish_flush(ticket)
    assert log.flushed_offset == 0
    log.flush()
    assert log.flushed_offset == 2


@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
def test_a_failed_sync_takes_the_log_out_of_service(
    forgetful: Disk, memory: ForgetfulFilesystem, operation: str
) -> None:
    log = forgetful.open_log()
    append_values(log, b"flushed")
    log.flush()
    append_values(log, b"not flushed")
    log.roll(NOW_MS)
    memory.fail(operation, errno.EIO)
    with pytest.raises(BrokerError) as refused:
        log.flush()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None
    assert log.flushed_offset == 1
    assert not log.needs_flush(NOW_MS)
    for attempt in (lambda: append_values(log, b"x"), lambda: read_bytes(log, 1), log.flush, lambda: log.roll(NOW_MS)):
        with pytest.raises(BrokerError) as refused:
            attempt()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    found = log.read(0, ALL, ALL, True)
    assert found is not None
    assert found.next_offset == 1, "what was flushed before can still be read, and nothing else"
    memory.crash()
    assert read_values(forgetful.open_log())[:1] == [b"flushed"]


def test_a_ticket_that_was_never_synced_changes_nothing(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    log = forgetful.open_log()
    append(log, batch_of([b"a"]), leader_epoch=3)
    ticket = log.begin_flush()
    assert ticket is not None
    log.finish_flush(ticket)
    assert log.flushed_offset == 0
    log.flush()
    assert log.flushed_offset == 1
    memory.crash()
    assert forgetful.open_log().last_leader_epoch == 3


def test_flush_messages_and_flush_ms_ask_for_a_flush(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(flush_messages=3, flush_ms=100))
    assert not log.needs_flush(NOW_MS + 1000)
    append(log, batch_of([b"a", b"b"]), now_ms=NOW_MS)
    assert log.oldest_unflushed_ms == NOW_MS
    assert not log.needs_flush(NOW_MS + 99)
    assert log.needs_flush(NOW_MS + 100)
    append(log, batch_of([b"c"]), now_ms=NOW_MS + 50)
    assert log.oldest_unflushed_ms == NOW_MS
    assert log.needs_flush(NOW_MS + 51)
    log.flush()
    assert log.oldest_unflushed_ms == -1
    assert not log.needs_flush(NOW_MS + 1000)


def test_one_sync_of_the_data_directory_serves_all_partitions_made_before_it(
    forgetful: Disk, memory: ForgetfulFilesystem
) -> None:
    store = forgetful.open_store()
    logs = [store.create(TopicPartition("t", at), TOPIC_ID, TopicConfig()) for at in range(5)]
    for log in logs:
        append_values(log, b"a")
    before = memory.calls["sync_dir"]
    for log in logs:
        log.flush()
    # Twice per partition (the epochs file is replaced, then the names are synced), and the parent once.
    assert memory.calls["sync_dir"] - before == 2 * 5 + 1
    memory.crash()
    assert len(forgetful.open_store().logs) == 5


def test_a_deleted_log_does_not_mind_its_flush_coming_back(disk: Disk) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    append_values(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    store.delete(TP)
    ticket.sync()
    log.finish_flush(ticket)
    with pytest.raises(BrokerError):
        log.begin_flush()


def test_closing_forgets_a_flush_that_nobody_finished(disk: Disk) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    append_values(log, b"a")
    assert log.begin_flush() is not None
    store.close()
    assert read_values(disk.open_log()) == [b"a"]


def test_a_new_leader_epoch_is_durable_with_its_first_record(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    append(log, batch_of([b"a"]), leader_epoch=2)
    log.roll(NOW_MS)
    append(log, batch_of([b"b"]), leader_epoch=5)
    log.flush()
    store.write_checkpoints()
    memory.crash()
    assert [each.epoch for each in forgetful.open_log().epochs.starts] == [2, 5]


def test_producers_of_a_rolled_segment_are_durable_with_the_flush(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    produce(log, 0)
    log.roll(NOW_MS)
    append_values(log, b"a")
    log.flush()
    store.write_checkpoints()
    memory.crash(Forget.EVERYTHING)
    memory.opened.clear()
    reopened = forgetful.open_log()
    assert not any(path.endswith("00000000000000000000.log") for path in memory.opened), "the snapshot is enough"
    assert produce(reopened, 0).duplicate


def test_what_is_written_beside_a_segment_at_a_roll_may_be_lost(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    """The records were flushed before, so that the recovery point lies behind them; their names are durable, too."""
    store = forgetful.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    write(log, 1, 0)
    end(log, 1, Marker(MarkerType.ABORT, 0))
    log.flush()
    log.roll(NOW_MS)
    append_values(log, b"a", b"b")
    store.write_checkpoints()
    log.truncate_to(3)
    memory.crash(Forget.EVERYTHING)
    assert forgetful.open_log().aborted_transactions(0, 2) == [AbortedTransaction(1, 0)]
