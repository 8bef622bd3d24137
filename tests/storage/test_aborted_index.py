"""`.txnindex`: Kafka's bytes, searched by what a reader got, rebuilt when it cannot be believed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk
from transaction_cases import ABORT, COMMIT, end, outcome, stored, write

from tidelog.config.topic import TopicConfig
from tidelog.storage.aborted import AbortedTransaction
from tidelog.storage.aborted_index import ENTRY_SIZE, AbortedEntry, AbortedIndex, AbortedIndexDamaged, pack, unpack
from tidelog.testing.forgetful_fs import ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log

STEM = "/00000000000000000000"


def index_of(*entries: AbortedEntry, saved: int = 0) -> AbortedIndex:
    """The first `saved` of them in the file, the others in memory."""
    fs = ForgetfulFilesystem()
    index = AbortedIndex(fs, STEM, 0)
    for at, each in enumerate(entries):
        index.append(each)
        if at + 1 == saved:
            index.save()
    return index


def three_aborted(log: Log) -> list[AbortedTransaction]:
    for producer_id in (1, 2, 3):
        write(log, producer_id, 0)
    for producer_id in (2, 1, 3):
        end(log, producer_id, ABORT)
    return [AbortedTransaction(1, 0), AbortedTransaction(2, 1), AbortedTransaction(3, 2)]


def test_the_bytes_are_kafkas(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0, 2)
    write(log, 8, 0)
    end(log, 7, ABORT)
    end(log, 8, ABORT)
    log.roll(NOW_MS)
    expected = struct.pack(">hqqqq", 0, 7, 0, 3, 2) + struct.pack(">hqqqq", 0, 8, 2, 4, 5)
    assert disk.content("00000000000000000000.txnindex") == expected
    assert ENTRY_SIZE == 34


def test_a_segment_without_aborts_has_no_such_file(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0)
    end(log, 7, COMMIT)
    log.roll(NOW_MS)
    log.close()
    assert disk.files(".txnindex") == []


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedEntry]:
    """As a log writes them: by markers, each with the first offset that is open then."""
    entries: list[AbortedEntry] = []
    open_: dict[int, int] = {}
    for offset in range(draw(st.integers(0, 60))):
        producer_id = draw(st.integers(0, 4))
        if producer_id in open_:
            first = open_.pop(producer_id)
            if draw(st.booleans()):
                entries.append(AbortedEntry(producer_id, first, offset, min([*open_.values(), offset + 1])))
        else:
            open_[producer_id] = offset
    return entries


@given(histories(), st.integers(0, 60), st.integers(0, 60), st.data())
def test_a_search_finds_what_overlaps(
    entries: list[AbortedEntry], first: int, second: int, data: st.DataObject
) -> None:
    from_offset, upto = min(first, second), max(first, second)
    index = index_of(*entries, saved=data.draw(st.integers(0, len(entries))))
    found, complete = index.overlapping(from_offset, upto)
    assert found == [each for each in entries if each.last_offset >= from_offset and each.first_offset < upto]
    if complete:
        assert any(each.last_stable_offset >= upto for each in entries)


@given(histories(), st.integers(0, 60), st.data())
def test_a_cut_takes_the_markers_behind_it(entries: list[AbortedEntry], offset: int, data: st.DataObject) -> None:
    index = index_of(*entries, saved=data.draw(st.integers(0, len(entries))))
    index.truncate(offset)
    kept = [each for each in entries if each.last_offset < offset]
    assert index.overlapping(0, 100)[0] == kept
    index.append(AbortedEntry(9, 90, 95, 96))
    index.save()
    assert index.overlapping(0, 100)[0] == [*kept, AbortedEntry(9, 90, 95, 96)]


@given(histories())
def test_entries_survive_their_bytes(entries: list[AbortedEntry]) -> None:
    assert list(unpack(pack(entries))) == entries


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 33,
        struct.pack(">hqqqq", 1, 7, 0, 3, 4),
        struct.pack(">hqqqq", 0, 7, 3, 3, 4),
        struct.pack(">hqqqq", 0, 7, -1, 3, 4),
        bytes(ENTRY_SIZE),
        struct.pack(">hqqqq", 0, 7, 0, 3, 4) * 2,
    ],
    ids=["torn", "version", "first is last", "negative", "zeros", "repeated"],
)
def test_what_is_no_index_is_recognised(data: bytes) -> None:
    with pytest.raises(AbortedIndexDamaged):
        list(unpack(data))


def test_many_entries_do_not_stay_in_memory(disk: Disk) -> None:
    disk.open_log()
    index = AbortedIndex(disk.fs, f"{disk.partition}/00000000000000000000", 0)
    entries = [AbortedEntry(1, 2 * at, 2 * at + 1, 2 * at + 2) for at in range(3000)]
    for each in entries:
        index.append(each)
    assert index.file_bytes > 0
    assert index.overlapping(4000, 4010)[0] == entries[2000:2005]
    index.check()
    assert index.overlapping(0, 6000)[0] == entries


# -- through the log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0" * 5,
        lambda data: bytes(len(data)),
        lambda data: data[ENTRY_SIZE:] + data[:ENTRY_SIZE],
    ],
    ids=["torn", "longer", "zeros", "out of order"],
)
@pytest.mark.parametrize("active", [True, False])
def test_a_damaged_one_is_rebuilt_from_the_log(disk: Disk, harm: object, active: bool) -> None:
    assert callable(harm)
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    expected = three_aborted(log)
    if not active:
        log.roll(NOW_MS)
    store.close()
    name = "00000000000000000000.txnindex"
    disk.overwrite(name, harm(disk.content(name)))
    store = disk.open_store()
    log = store.logs[TP]
    write(log, 4, 0)
    end(log, 4, ABORT)
    assert log.aborted_transactions(0, 10) == [*expected, AbortedTransaction(4, 6)]
    store.close()
    assert disk.open_log().aborted_transactions(0, 10) == [*expected, AbortedTransaction(4, 6)]


def test_a_damaged_one_that_nobody_asked_for_is_still_known_to_be_damaged_after_another_restart(disk: Disk) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    expected = three_aborted(log)
    store.close()
    name = "00000000000000000000.txnindex"
    disk.overwrite(name, disk.content(name)[:-1])
    store = disk.open_store()
    write(store.logs[TP], 4, 0)
    end(store.logs[TP], 4, ABORT)
    store.close()
    assert disk.open_log().aborted_transactions(0, 10) == [*expected, AbortedTransaction(4, 6)]


def test_a_damaged_one_is_cut_nevertheless(disk: Disk) -> None:
    store = disk.open_store()
    three_aborted(store.create(TP, TOPIC_ID, TopicConfig()))
    store.close()
    name = "00000000000000000000.txnindex"
    disk.overwrite(name, disk.content(name)[:-1])
    log = disk.open_log()
    log.truncate_to(4)
    assert log.aborted_transactions(0, 10) == [AbortedTransaction(2, 1)]


def test_a_search_goes_over_segments(disk: Disk) -> None:
    """A transaction that begins in one and is aborted in another belongs to the marker's segment."""
    log = disk.open_log()
    write(log, 1, 0)
    log.roll(NOW_MS)
    write(log, 2, 0)
    end(log, 2, ABORT)
    log.roll(NOW_MS)
    write(log, 3, 0)
    log.roll(NOW_MS)
    end(log, 1, ABORT)
    end(log, 3, ABORT)
    assert disk.files(".txnindex") == ["00000000000000000001.txnindex"], "the active one's is not written yet"
    expected = outcome(stored(log))
    for from_offset in range(7):
        for upto in range(from_offset, 7):
            assert log.aborted_transactions(from_offset, upto) == expected.aborted(from_offset, upto)


def test_retention_takes_it_along(disk: Disk) -> None:
    config = TopicConfig(retention_bytes=0, file_delete_delay_ms=1000)
    log = disk.open_log(config)
    three_aborted(log)
    log.roll(NOW_MS)
    log.flush()
    assert log.apply_retention(NOW_MS) == 1
    assert disk.files(".txnindex") == []
    assert disk.files(".txnindex.deleted") == ["00000000000000000000.txnindex.deleted"]
    log.doomed.remove_due(NOW_MS + 1000)
    assert disk.files(".deleted") == []
    assert log.aborted_transactions(6, 10) == []


def test_one_without_a_log_is_removed(disk: Disk) -> None:
    store = disk.open_store()
    write(store.create(TP, TOPIC_ID, TopicConfig()), 1, 0)
    store.close()
    disk.overwrite("00000000000000000005.txnindex", b"x" * ENTRY_SIZE)
    disk.open_log()
    assert disk.files(".txnindex") == []


def test_one_of_records_that_were_cut_away_counts_no_more(disk: Disk) -> None:
    """A power cut may bring the index back that went with a cut; the log of its name has begun anew."""
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    write(log, 1, 0)
    log.roll(NOW_MS)
    write(log, 2, 0)
    end(log, 2, ABORT)
    store.close()
    stale = disk.content("00000000000000000001.txnindex")
    store = disk.open_store()
    store.logs[TP].truncate_to(1)
    store.close()
    disk.overwrite("00000000000000000001.txnindex", stale)
    store = disk.open_store()
    log = store.logs[TP]
    write(log, 2, 0)
    end(log, 2, COMMIT)
    store.close()
    assert disk.open_log().aborted_transactions(0, 10) == []
