"""Batches with records taken out: everything else about them stays."""

from __future__ import annotations

import pytest
from compaction_cases import keyed
from hypothesis import given
from hypothesis import strategies as st
from storage_cases import NOW_MS

from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.header import crc_ok, patch, peek, stamp_append_time
from tidelog.records.record import CorruptRecords, Record, inflate, iter_records
from tidelog.storage.compaction.rewriting import emptied, rewrite
from tidelog.storage.compaction.selecting import by_offset
from tidelog.types import LeaderEpoch, Offset

TIMESTAMPS = st.one_of(st.integers(0, 2**45), st.sampled_from([-1, 0, 2**62]))


@pytest.mark.parametrize("codec", Codec)
def test_what_names_the_batch_stays(codec: Codec) -> None:
    data = keyed([(b"a", b"1" * 50), (b"b", b"2" * 50), (b"c", b"3" * 50)], codec=codec, producer_id=9, sequence=40)
    patch(data, 0, Offset(1000), LeaderEpoch(3))
    header = peek(data)
    body = inflate(data, header)
    out = rewrite(header, body, by_offset(header, body, [1001], drop_tombstones=False), None)
    new = peek(out)
    same = header._replace(batch_length=new.batch_length, crc=new.crc, record_count=1, max_timestamp=NOW_MS + 1)
    assert new == same
    assert crc_ok(out, 0, len(out))
    assert list(iter_records(out)) == [Record(1001, NOW_MS + 1, b"b", b"2" * 50)]


@given(timestamps=st.lists(TIMESTAMPS, min_size=1, max_size=6), horizon_ms=st.integers(0, 2**45), data=st.data())
def test_timestamps_outlive_the_marking_of_tombstones(
    timestamps: list[int], horizon_ms: int, data: st.DataObject
) -> None:
    records = [Record(at, timestamp, b"k%d" % at, None, (("h", b"v"),)) for at, timestamp in enumerate(timestamps)]
    batch = bytes(build_batch(records))
    header = peek(batch)
    body = inflate(batch, header)
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(records))), min_size=1)))
    out = rewrite(header, body, by_offset(header, body, kept, drop_tombstones=False), horizon_ms)
    new = peek(out)
    assert new.has_delete_horizon
    assert new.base_timestamp == horizon_ms
    assert list(iter_records(out)) == [records[each] for each in kept]
    assert new.max_timestamp == max(timestamps[each] for each in kept)


def test_append_time_is_the_batchs_own() -> None:
    data = keyed([(b"a", None), (b"b", b"2")], timestamp=5)
    stamp_append_time(data, 0, NOW_MS)
    header = peek(data)
    body = inflate(data, header)
    out = rewrite(header, body, by_offset(header, body, [0], drop_tombstones=False), NOW_MS + 9)
    assert (peek(out).base_timestamp, peek(out).max_timestamp) == (NOW_MS + 9, NOW_MS)
    assert [each.timestamp for each in iter_records(out)] == [NOW_MS]


@pytest.mark.parametrize("append_time", [False, True])
def test_an_emptied_batch_keeps_its_offsets_and_its_producer(append_time: bool) -> None:
    data = keyed([(b"a", b"1"), (b"b", b"2")], codec=Codec.GZIP, producer_id=9, sequence=40)
    patch(data, 0, Offset(1000), LeaderEpoch(3))
    if append_time:
        stamp_append_time(data, 0, NOW_MS)
    header = peek(data)
    out = emptied(header)
    new = peek(out)
    assert crc_ok(out, 0, len(out))
    assert list(iter_records(out)) == []
    assert len(out) == 61
    assert (new.base_offset, new.last_offset, new.leader_epoch) == (1000, 1001, 3)
    assert (new.producer_id, new.producer_epoch, new.base_sequence, new.last_sequence) == (9, 0, 40, 41)
    assert new.max_timestamp == (NOW_MS if append_time else -1)
    assert new.log_append_time is append_time


def test_a_timestamp_that_is_no_number_is_refused() -> None:
    data = keyed([(b"a", b"1"), (b"b", b"2")])
    header = peek(data)
    body = inflate(data, header)
    broken = b"\x22\x00" + b"\xff" * 10 + b"\x01" + body[3:8] + body[8:]
    selection = by_offset(header, body, [0], drop_tombstones=False)._replace(runs=[(0, len(broken))])
    with pytest.raises(CorruptRecords):
        rewrite(header, broken, selection, None)
