"""The walk over records must refuse exactly what taking them apart refuses, and offset deltas that do not count up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.records.build import append_record, seal_batch
from tidelog.records.frames import check_frames
from tidelog.records.header import BatchHeader
from tidelog.records.record import CorruptRecords, Record, RecordHeaders, iter_records

payloads = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70)
Content = tuple[int, bytes | None, bytes | None, RecordHeaders]
contents = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        payloads,
        payloads,
        st.lists(st.tuples(st.text(max_size=5), payloads), max_size=2).map(tuple),
    ),
    max_size=6,
)


def body_of(records: list[Content]) -> bytes:
    body = bytearray()
    for index, (delta, key, value, headers) in enumerate(records):
        append_record(body, index, delta, key, value, headers=headers)
    return bytes(body)


def read(body: bytes, count: int) -> list[Record]:
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, count)
    return list(iter_records(seal_batch(header, body)))


@given(contents)
def test_whole_records_pass_and_keyless_ones_are_named(records: list[Content]) -> None:
    expected = [index for index, (_, key, _, _) in enumerate(records) if key is None]
    assert check_frames(body_of(records), len(records)) == expected


@settings(max_examples=500)
@given(
    contents.filter(bool),
    st.integers(0, 1000),
    st.integers(0, 255),
    st.integers(-1, 1),
)
def test_it_agrees_with_reading(records: list[Content], position: int, value: int, count_error: int) -> None:
    body = bytearray(body_of(records))
    body[position % len(body)] = value
    count = len(records) + count_error
    try:
        found = read(bytes(body), count)
    except CorruptRecords:
        with pytest.raises(CorruptRecords):
            check_frames(bytes(body), count)
        return
    if [record.offset for record in found] == list(range(count)):
        assert check_frames(bytes(body), count) == [i for i, record in enumerate(found) if record.key is None]
    else:
        with pytest.raises(CorruptRecords, match="deltas must count up"):
            check_frames(bytes(body), count)


@pytest.mark.parametrize("deltas", [[1], [0, 2], [0, 0], [1, 0], [0, -1], [0, 1, 2**31 - 1]])
def test_offset_deltas_must_count_up_from_zero(deltas: list[int]) -> None:
    body = bytearray()
    for delta in deltas:
        append_record(body, delta, 0, b"k", b"v")
    with pytest.raises(CorruptRecords, match="deltas must count up"):
        check_frames(bytes(body), len(deltas))


def test_many_records_with_deltas_of_every_width() -> None:
    body = bytearray()
    for index in range(20_000):
        append_record(body, index, index * 1000, None, b"")
    assert len(check_frames(bytes(body), 20_000)) == 20_000


def test_a_null_key_spelled_in_two_bytes_is_still_null() -> None:
    assert check_frames(bytes.fromhex("0e00000081000100"), 1) == [0]


def test_no_records_are_fine_where_none_are_promised() -> None:
    assert check_frames(b"", 0) == []
