"""Whole cleanings of whole logs: what stays, under which offsets, and who still works afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from compaction_cases import (
    AMPLE,
    COMPACTED,
    UNTHROTTLED,
    Found,
    clean,
    close_segment,
    keyed,
    newest,
    put,
    read_all,
)
from storage_cases import ALL, NOW_MS, TOPIC_ID, TP, append, produce, read_headers

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.compression import Codec
from tidelog.records.header import peek
from tidelog.records.record import iter_records
from tidelog.storage.compaction import ticket as tickets
from tidelog.storage.compaction.cleaning import Cleaning
from tidelog.storage.compaction.offset_map import ENTRY_BYTES
from tidelog.storage.walk import Damage

if TYPE_CHECKING:
    from storage_cases import Disk

CODECS = list(Codec)


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_record_of_each_key_stays_under_its_offset(disk: Disk, codec: Codec) -> None:
    log = disk.open_log(COMPACTED)
    for at in range(60):
        put(log, (b"k%d" % (at % 7), b"value-%d" % at), (b"other-%d" % (at % 11), b"x" * 40), codec=codec)
    close_segment(log)
    written, size = read_all(log), log.size_bytes
    clean(log)
    assert read_all(log) == newest(written)
    assert log.size_bytes < size
    assert log.log_end_offset == 120
    assert log.clean_offset == 120


def test_the_active_segment_is_not_touched(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"k", b"closed-1"))
    put(log, (b"k", b"closed-2"))
    close_segment(log)
    put(log, (b"k", b"active-1"))
    put(log, (b"k", b"active-2"))
    log.flush()
    clean(log)
    assert [each.value for each in read_all(log)] == [b"closed-2", b"active-1", b"active-2"]


def test_nothing_beyond_the_safe_offset_is_looked_at(disk: Disk) -> None:
    """Else a record could go in favour of one that a crash takes back."""
    log = disk.open_log(COMPACTED)
    for at in range(3):
        put(log, (b"k", b"%d" % at))
        log.roll(NOW_MS)
    log.flush()
    assert tickets.look(log, 2, NOW_MS).upper == 2
    put(log, (b"k", b"unflushed"))
    log.roll(NOW_MS)
    assert tickets.look(log, log.log_end_offset, NOW_MS).upper == 3


@pytest.mark.parametrize("codec", CODECS)
def test_a_tombstone_stays_for_its_time_after_the_first_cleaning(disk: Disk, codec: Codec) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"gone", b"v"), (b"stays", b"v"))
    put(log, (b"gone", None), (b"stays", b"w"), codec=codec)
    close_segment(log)
    clean(log, NOW_MS)
    tombstone = Found(2, NOW_MS, b"gone", None)
    assert read_all(log) == [tombstone, Found(3, NOW_MS + 1, b"stays", b"w")]
    (header,) = read_headers(log)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 1000
    assert (header.base_offset, header.last_offset, header.max_timestamp) == (2, 3, NOW_MS + 1)
    put(log, (b"more", b"v"))
    close_segment(log)
    clean(log, NOW_MS + 999)
    assert tombstone in read_all(log), "a later cleaning does not set its time anew"
    put(log, (b"more", b"v"))
    close_segment(log)
    clean(log, NOW_MS + 1000)
    assert tombstone not in read_all(log)
    assert Found(3, NOW_MS + 1, b"stays", b"w") in read_all(log)


def test_a_tombstone_does_not_bring_back_what_it_deleted(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"k", b"old"))
    log.roll(NOW_MS)
    put(log, (b"k", None))
    close_segment(log)
    for at_ms in (NOW_MS, NOW_MS + 2000):
        put(log, (b"other", b"v"))
        close_segment(log)
        clean(log, at_ms)
    assert [each.key for each in read_all(log)] == [b"other"]


def test_a_key_that_comes_back_survives_the_end_of_its_tombstone(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"k", None))
    close_segment(log)
    clean(log, NOW_MS)
    put(log, (b"k", b"again"))
    close_segment(log)
    clean(log, NOW_MS + 5000)
    assert [(each.key, each.value) for each in read_all(log)] == [(b"k", b"again")]


def test_append_time_outlives_the_marking_of_tombstones(disk: Disk) -> None:
    log = disk.open_log(replace(COMPACTED, message_timestamp_type="LogAppendTime"))
    append(log, _batch_of_pairs((b"k", b"v"), (b"k", None)), now_ms=NOW_MS + 5)
    close_segment(log)
    clean(log, NOW_MS + 10)
    assert read_all(log) == [Found(1, NOW_MS + 5, b"k", None)]
    assert read_headers(log)[0].base_timestamp == NOW_MS + 1010


def test_a_producer_can_go_on_after_all_it_wrote_was_superseded(disk: Disk) -> None:
    store = disk.open_store(COMPACTED)
    log = store.create(TP, TOPIC_ID, COMPACTED)
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=7, sequence=0)
    put(log, (b"a", b"2"), (b"b", b"2"), producer_id=7, sequence=2)
    put(log, (b"a", b"3"), (b"b", b"3"))
    close_segment(log)
    clean(log)
    headers = read_headers(log)
    assert [(each.base_offset, each.last_offset, each.record_count) for each in headers] == [(2, 3, 0), (4, 5, 2)]
    assert (headers[0].producer_id, headers[0].producer_epoch, headers[0].base_sequence) == (7, 0, 2)
    assert [each.offset for each in read_all(log)] == [4, 5]
    store.close()
    for name in disk.files(".snapshot"):
        disk.fs.remove(f"{disk.partition}/{name}")
    again = disk.open_log(COMPACTED)
    assert produce(again, 4, producer_id=7).base_offset == 6
    with pytest.raises(BrokerError) as refused:
        produce(again, 9, producer_id=7)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_emptied_batch_goes_once_its_producer_has_moved_on(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"a", b"1"), producer_id=7, sequence=0)
    put(log, (b"a", b"2"))
    close_segment(log)
    clean(log)
    assert [each.record_count for each in read_headers(log)] == [0, 1]
    put(log, (b"a", b"3"), producer_id=7, sequence=1)
    close_segment(log)
    clean(log)
    assert [each.base_offset for each in read_headers(log)] == [2]


def test_a_segment_keeps_its_last_batch_so_that_it_ends_where_the_next_begins(disk: Disk) -> None:
    log = disk.open_log(replace(COMPACTED, segment_bytes=150))
    for at in range(4):
        put(log, (b"k", b"%d" % at * 60))
    close_segment(log)
    clean(log)
    headers = read_headers(log)
    assert [each.base_offset for each in headers] == [0, 1, 2, 3]
    assert [each.record_count for each in headers] == [0, 0, 0, 1]
    put(log, (b"other", b"v" * 60))
    close_segment(log)
    clean(log)
    assert [each.base_offset for each in read_headers(log)] == [1, 2, 3, 4], "emptied ones share a segment, and go"
    assert [each.offset for each in read_all(log)] == [3, 4]


def test_records_without_a_key_go(disk: Disk) -> None:
    """They can only be there if the topic was not compacted before."""
    log = disk.open_log(COMPACTED)
    put(log, (None, b"1"), (b"k", b"2"), (None, b"3"))
    close_segment(log)
    put(log, (None, b"active"))
    assert clean(log).keyless == 2
    assert [each.value for each in read_all(log)] == [b"2", b"active"]


def test_small_segments_become_one(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    for at in range(12):
        put(log, (b"k%d" % (at % 3), b"%d" % at))
        log.roll(NOW_MS)
    log.flush()
    clean(log)
    assert list(log.segments.base_offsets) == [0, 12]
    assert disk.files(".log") == ["00000000000000000000.log", "00000000000000000012.log"]
    assert len(disk.files(".log.deleted")) == 12
    assert not disk.files(".cleaned")
    assert not disk.files(".swap")
    assert log.doomed.remove_due(NOW_MS + 1000)
    assert not disk.files(".deleted")


def test_more_keys_than_fit_are_cleaned_a_part_at_a_time(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    for at in range(40):
        put(log, *[(b"k%d" % ((at * 3 + each) % 30), b"%d" % at) for each in range(3)])
    close_segment(log)
    written = read_all(log)
    four_keys = AMPLE._replace(map_bytes=4 * ENTRY_BYTES)
    mapped = clean(log, limits=four_keys)
    assert (mapped.keys, mapped.end_offset) == (4, 4), "in the middle of the second batch"
    rounds = 0
    while log.clean_offset < 120:
        before = log.clean_offset
        clean(log, limits=four_keys)
        assert log.clean_offset > before
        rounds += 1
    assert rounds >= 10
    assert read_all(log) == newest(written)


def test_cleaning_again_changes_nothing(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    for at in range(50):
        put(log, (b"k%d" % (at % 9), b"%d" % at * 9))
    close_segment(log)
    clean(log)
    clean(log)  # joins the small segments that the first one left
    content = {name: disk.content(name) for name in disk.files(".log")}
    clean(log)
    log.clean_offset = 0
    clean(log)
    assert {name: disk.content(name) for name in disk.files(".log")} == content


def test_readers_of_replaced_segments_finish_what_they_began(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    for at in range(10):
        put(log, (b"k", b"%d" % at))
    close_segment(log)
    held = log.read(0, ALL, ALL, True)
    assert held is not None
    before = held.slice.read()
    clean(log)
    log.doomed.remove_due(NOW_MS + 1000)
    assert held.slice.read() == before


def test_reading_goes_on_from_any_offset_that_was_there(disk: Disk) -> None:
    """Also where a reader had stopped before: positions remembered for it meant the old file."""
    log = disk.open_log(replace(COMPACTED, segment_bytes=500))
    for at in range(40):
        put(log, (b"k%d" % (at % 5), b"%d" % at))
    close_segment(log)
    for offset in range(40):
        assert log.read(offset, 200, ALL, True) is not None
    written = read_all(log)
    clean(log)
    left = newest(written)
    for offset in range(40):
        piece = log.read(offset, 1, ALL, True)
        assert piece is not None
        seen: list[int] = []
        while piece is not None and not seen:
            seen = [each.offset for each in iter_records(piece.slice.read()) if each.offset >= offset]
            piece = log.read(piece.next_offset, 1, ALL, True)
        assert seen[0] == min(each.offset for each in left if each.offset >= offset)


def test_records_are_still_found_by_time(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"a", b"1"), (b"b", b"1"), timestamp=NOW_MS)
    put(log, (b"a", b"2"), timestamp=NOW_MS + 500)
    put(log, (b"a", b"3"), timestamp=NOW_MS + 100)
    close_segment(log)
    clean(log)
    assert [each.offset for each in read_all(log)] == [1, 3]
    first = log.offset_for_timestamp(NOW_MS + 2)
    assert first is not None
    assert (first.offset, first.timestamp) == (3, NOW_MS + 100)
    latest = log.max_timestamp_offset()
    assert latest is not None
    assert (latest.offset, latest.timestamp) == (3, NOW_MS + 100)


def test_leader_epochs_are_kept(disk: Disk) -> None:
    store = disk.open_store(COMPACTED)
    log = store.create(TP, TOPIC_ID, COMPACTED)
    for epoch in range(3):
        append(log, _batch_of_pairs((b"k", b"%d" % epoch), (b"e%d" % epoch, b"")), leader_epoch=epoch)
    close_segment(log)
    starts = log.epochs.starts
    clean(log)
    assert [each.leader_epoch for each in read_headers(log)] == [0, 1, 2]
    store.close()
    disk.fs.remove(f"{disk.partition}/leader-epoch-checkpoint")
    assert disk.open_log(COMPACTED).epochs.starts == starts


def test_a_cleaned_log_opens_as_it_was_closed(disk: Disk) -> None:
    store = disk.open_store(COMPACTED)
    log = store.create(TP, TOPIC_ID, COMPACTED)
    for at in range(50):
        put(log, (b"k%d" % (at % 9), b"%d" % at * 9))
    close_segment(log)
    clean(log)
    left = read_all(log)
    store.close()
    again = disk.open_store(COMPACTED).logs[TP]
    assert read_all(again) == left
    assert again.clean_offset == 50
    put(again, (b"k0", b"after"))
    close_segment(again)
    clean(again)
    assert [each for each in read_all(again) if each.key == b"k0"] == [Found(50, NOW_MS, b"k0", b"after")]


def test_a_cut_takes_back_what_was_cleaned_beyond_it(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    for at in range(10):
        put(log, (b"k%d" % at, b"1"))
    close_segment(log)
    clean(log)
    log.truncate_to(6)
    assert log.clean_offset == 6
    put(log, (b"k0", b"2"))
    close_segment(log)
    clean(log)
    assert [each.offset for each in read_all(log)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("before", [0, 1])
def test_a_cut_into_a_gap_is_remembered_where_no_batch_tells_of_it(disk: Disk, before: int) -> None:
    store = disk.open_store(COMPACTED)
    log = store.create(TP, TOPIC_ID, COMPACTED)
    for at in range(before):
        put(log, (b"once-%d" % at, b"v"))
    for at in range(6):
        put(log, (b"k", b"%d" % at))
    close_segment(log)
    clean(log)
    log.truncate_to(before + 3)
    assert log.log_end_offset == before + 3
    store.close()
    again = disk.open_store(COMPACTED).logs[TP]
    assert again.log_end_offset == before + 3
    assert put(again, (b"k", b"new")) == before + 3
    assert [each.offset for each in read_all(again)] == [*range(before), before + 3]


def test_what_a_cut_overtook_is_not_put_in_place(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    for at in range(10):
        put(log, (b"k", b"%d" % at))
    close_segment(log)
    ticket = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    (group,) = cleaning.map_dirty().groups
    cleaned = cleaning.clean(group)
    assert cleaned is not None
    log.truncate_to(5)
    assert not log.put_cleaned(ticket, group, cleaned)
    tickets.settle(log, ticket, 10)
    assert log.clean_offset == 0
    assert [each.offset for each in read_all(log)] == [0, 1, 2, 3, 4]


def test_what_retention_overtook_is_not_put_in_place(disk: Disk) -> None:
    log = disk.open_log(replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000))
    put(log, (b"k", b"old"), timestamp=NOW_MS - 20_000)
    log.roll(NOW_MS)
    put(log, (b"k", b"new"))
    close_segment(log)
    ticket = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    (group,) = cleaning.map_dirty().groups
    cleaned = cleaning.clean(group)
    assert cleaned is not None
    assert log.apply_retention(NOW_MS) == 1
    assert not log.put_cleaned(ticket, group, cleaned)
    assert [each.value for each in read_all(log)] == [b"new"]


def test_a_compacted_log_may_also_be_subject_to_retention(disk: Disk) -> None:
    log = disk.open_log(replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000))
    put(log, (b"old", b"v"), timestamp=NOW_MS - 20_000)
    close_segment(log)
    clean(log)
    put(log, (b"k", b"1"), (b"k", b"2"))
    close_segment(log)
    assert log.apply_retention(NOW_MS) == 1
    clean(log)
    assert [each.value for each in read_all(log)] == [b"2"]


def test_damage_is_not_sealed_with_a_new_checksum(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"a", b"v" * 50), (b"b", b"v"))
    put(log, (b"a", b"w"))
    close_segment(log)
    name = "00000000000000000000.log"
    content = bytearray(disk.content(name))
    content[90] ^= 1
    disk.overwrite(name, bytes(content))
    with pytest.raises(Damage, match="checksum"):
        clean(log)
    assert disk.files(".log") == [name, "00000000000000000003.log"]


def _batch_of_pairs(*pairs: tuple[bytes, bytes | None]) -> memoryview:
    batch = keyed(pairs)
    assert peek(batch).record_count == len(pairs)
    return batch
