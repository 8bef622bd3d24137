"""Which records of a batch survive, against the obvious way to find out; and batches that are not what they claim."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from compaction_cases import keyed
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.records.build import build_batch
from tidelog.records.header import BatchHeader, peek
from tidelog.records.record import CorruptRecords, Record, inflate, iter_records
from tidelog.storage.compaction.offset_map import KEY_BYTES_MAX, OffsetMap, digest
from tidelog.storage.compaction.rewriting import rewrite
from tidelog.storage.compaction.selecting import Selection, by_key, by_offset
from tidelog.types import Offset

KEYS = st.one_of(
    st.sampled_from([b"", b"a", b"b", b"c", b"x" * KEY_BYTES_MAX, b"y" * (KEY_BYTES_MAX + 1), b"z" * 300]),
    st.binary(max_size=3),
)
VALUES = st.one_of(st.none(), st.binary(max_size=200))
AMPLE_BYTES = 1 << 20
MAPPED_END = 700


class Built(NamedTuple):
    header: BatchHeader
    body: bytes
    records: list[Record]


@st.composite
def batch(draw: st.DrawFn, keys: st.SearchStrategy[bytes | None] = KEYS) -> Built:
    """Offsets with gaps, as in a batch that was compacted before."""
    base = draw(st.integers(0, 1000))
    deltas = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=12)))
    records = [
        Record(base + delta, draw(st.integers(0, 2**45)), draw(keys), draw(VALUES), draw(HEADERS)) for delta in deltas
    ]
    last = Offset(records[-1].offset + draw(st.integers(0, 5)))
    data = bytes(build_batch(records, base_offset=Offset(base), last_offset=last))
    header = peek(data)
    return Built(header, inflate(data, header), records)


HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)


def chosen(built: Built, selection: Selection) -> list[Record]:
    if not selection.kept:
        assert not selection.runs
        return []
    rewritten = rewrite(built.header, built.body, selection, None)
    assert peek(rewritten).record_count == selection.kept
    return list(iter_records(rewritten))


@given(built=batch(st.none() | KEYS), newer=st.dictionaries(KEYS, st.integers(0, MAPPED_END - 1)), drop=st.booleans())
def test_by_key_keeps_what_nothing_newer_supersedes(built: Built, newer: dict[bytes, int], drop: bool) -> None:
    offsets = {key if len(key) <= KEY_BYTES_MAX else digest(key): offset for key, offset in newer.items()}
    selection = by_key(built.header, built.body, offsets, MAPPED_END, drop_tombstones=drop)
    expected = [record for record in built.records if survives(record, newer, drop_tombstones=drop)]
    assert chosen(built, selection) == expected
    assert selection.tombstones == any(each.value is None and each.offset < MAPPED_END for each in expected)


def survives(record: Record, newer: dict[bytes, int], *, drop_tombstones: bool) -> bool:
    if record.offset >= MAPPED_END:
        return True
    if record.key is None or newer.get(record.key, -1) > record.offset:
        return False
    return not (drop_tombstones and record.value is None)


@given(built=batch(), drop=st.booleans())
def test_both_ways_give_the_same_answer(built: Built, drop: bool) -> None:
    mapping = OffsetMap(AMPLE_BYTES, 0)
    assert mapping.add(built.header, built.body)
    survivors = mapping.live()
    looked_up = by_key(built.header, built.body, mapping.offsets, mapping.end_offset, drop_tombstones=drop)
    listed = by_offset(built.header, built.body, survivors, drop_tombstones=drop)
    assert chosen(built, looked_up) == chosen(built, listed)
    assert looked_up == listed
    last = {each.key: each.offset for each in built.records}
    assert list(survivors) == sorted(last.values())


@given(built=batch(), at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_bytes_that_are_not_records_are_refused_or_read_within_the_batch(built: Built, at: int, byte: int) -> None:
    """A checksum can hold over anything that a producer cares to send."""
    body = bytearray(built.body)
    at %= len(body)
    assume(body[at] != byte)
    body[at] = byte
    mapping = OffsetMap(AMPLE_BYTES, 0)
    try:
        mapping.add(built.header, bytes(body))
        selection = by_key(built.header, bytes(body), mapping.offsets, 2000, drop_tombstones=False)
    except CorruptRecords:
        return
    allowed = range(built.header.base_offset, built.header.last_offset + 1)
    assert set(mapping.offsets.values()) <= set(allowed)
    assert all(0 <= start < end <= len(body) for start, end in selection.runs)


@pytest.mark.parametrize("cut", [1, 2, 5, 20])
def test_a_batch_that_ends_too_early_is_refused(cut: int) -> None:
    data = keyed([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    header = peek(data)
    body = inflate(data, header)[:-cut]
    with pytest.raises(CorruptRecords):
        OffsetMap(AMPLE_BYTES, 0).add(header, body)
    with pytest.raises(CorruptRecords):
        by_key(header, body, {}, 100, drop_tombstones=False)


def test_a_batch_with_more_than_it_counts_is_refused() -> None:
    data = keyed([(b"a", b"1"), (b"b", b"2")])
    header = peek(data)
    body = inflate(data, header)
    fewer = header._replace(record_count=1)
    with pytest.raises(CorruptRecords):
        OffsetMap(AMPLE_BYTES, 0).add(fewer, body)
    with pytest.raises(CorruptRecords):
        by_key(fewer, body, {}, 100, drop_tombstones=False)


def test_a_survivor_that_is_not_there_is_noticed() -> None:
    data = keyed([(b"a", b"1"), (b"b", b"2")])
    header = peek(data)
    with pytest.raises(CorruptRecords):
        by_offset(header, inflate(data, header), [1, 7], drop_tombstones=False)
