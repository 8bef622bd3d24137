"""Taking batches and records apart, whole or damaged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch, seal_batch
from tidelog.records.compression import Codec, InflatedTooLarge
from tidelog.records.header import HEADER_SIZE, BatchHeader, CorruptBatch, crc_ok, peek
from tidelog.records.record import CorruptRecords, Record, RecordHeaders, inflate, iter_batches, iter_records
from tidelog.types import Offset

NOW_MS = 1_700_000_000_000

payloads = st.none() | st.binary(max_size=60) | st.binary(min_size=60, max_size=200)
header_names = st.text(max_size=10)
timestamps = st.just(-1) | st.integers(0, 2**62) | st.integers(NOW_MS, NOW_MS + 100_000)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records: list[Record] = []
    for _ in range(draw(st.integers(1, 8))):
        headers: RecordHeaders = tuple(draw(st.lists(st.tuples(header_names, payloads), max_size=3)))
        records.append(Record(offset, draw(timestamps), draw(payloads), draw(payloads), headers))
        offset += draw(st.integers(1, 3) | st.integers(1, 2**20))
    return records


def header_of(body: bytes, record_count: int, **fields: int) -> BatchHeader:
    plain = BatchHeader(
        0, 49 + len(body), -1, 2, 0, 0, max(0, record_count - 1), NOW_MS, NOW_MS, -1, -1, -1, record_count
    )
    return plain._replace(**fields)


def read_body(body: bytes, record_count: int = 1, **fields: int) -> list[Record]:
    return list(iter_records(seal_batch(header_of(body, record_count, **fields), body)))


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@given(records=record_lists())
def test_what_is_built_comes_back(codec: Codec, records: list[Record]) -> None:
    batch = build_batch(records, codec=codec)
    header = peek(batch)
    assert crc_ok(batch, 0, len(batch))
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.codec == codec
    assert list(iter_records(batch)) == records
    assert list(iter_records(memoryview(bytes(batch)))) == records


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_a_big_value_comes_back(codec: Codec) -> None:
    records = [Record(0, NOW_MS, None, bytes(range(256)) * 8192), Record(1, NOW_MS, b"k" * 20_000, b"")]
    assert list(iter_records(build_batch(records, codec=codec))) == records


def test_a_record_field_by_field() -> None:
    body = bytes.fromhex(
        "22"  # 17 bytes follow
        " 00"  # attributes
        " 04"  # timestamp delta 2
        " 06"  # offset delta 3
        " 02 6b"  # key "k"
        " 04 7661"  # value "va"
        " 04"  # two headers
        " 02 68 02 78"  # "h": "x"
        " 04 696a 01"  # "ij": null
    )
    assert read_body(body, base_offset=10) == [
        Record(13, NOW_MS + 2, b"k", b"va", (("h", b"x"), ("ij", None))),
    ]


def test_null_and_empty_are_different() -> None:
    records = [
        Record(0, NOW_MS, None, b""),
        Record(1, NOW_MS, b"", None),
        Record(2, NOW_MS, None, None, (("", None), ("", b""))),
    ]
    assert list(iter_records(build_batch(records))) == records


def test_header_keys_that_are_not_utf8_survive() -> None:
    body = bytes.fromhex("14 00 00 00 01 01 02 04 fffe 01")
    (record,) = read_body(body)
    assert record.headers[0][0].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert bytes(build_batch([record])[HEADER_SIZE:]) == body


def test_append_time_replaces_every_timestamp() -> None:
    records = [Record(0, 5, None, b"a"), Record(1, 9, None, b"b")]
    batch = build_batch(records, append_time_ms=NOW_MS)
    assert [record.timestamp for record in iter_records(batch)] == [NOW_MS, NOW_MS]


def test_no_timestamp_stays_no_timestamp() -> None:
    (record,) = iter_records(build_batch([Record(0, -1, None, b"v")]))
    assert record.timestamp == -1


def test_a_timestamp_that_overflows_wraps_as_it_does_elsewhere() -> None:
    body = bytes.fromhex("0c 00 02 00 01 01 00")
    (record,) = read_body(body, base_timestamp=2**63 - 1)
    assert record.timestamp == -(2**63)


def test_an_emptied_batch_has_no_records_but_keeps_its_range() -> None:
    batch = build_batch([], base_offset=Offset(100), last_offset=Offset(104))
    assert list(iter_records(batch)) == []
    assert (peek(batch).last_offset, peek(batch).record_count) == (104, 0)


def test_the_record_part_alone_is_compressed() -> None:
    records = [Record(0, NOW_MS, b"k", b"v" * 500)]
    plain, packed = build_batch(records), build_batch(records, codec=Codec.ZSTD)
    assert inflate(packed, peek(packed)) == bytes(plain[HEADER_SIZE:])
    assert len(packed) < len(plain)


@pytest.mark.parametrize(
    ("body", "count", "complaint"),
    [
        pytest.param("", 1, "end inside the one at byte 0", id="nothing there"),
        pytest.param("80", 1, "end inside", id="length cut"),
        pytest.param("01", 1, "claims -1 bytes", id="negative length"),
        pytest.param("feffffff0f", 1, "claims 2147483647 bytes, 0 are left", id="absurd length"),
        pytest.param("8080808080", 1, "does not fit into 32 bits", id="length too wide"),
        pytest.param("0200", 1, "end inside", id="record cut"),
        pytest.param("0c0000000101", 1, "claims 6 bytes, 5 are left", id="one byte short"),
        pytest.param("0c000000010100", 2, "end inside", id="fewer records than promised"),
        pytest.param("0c000000010100", 0, "7 bytes follow the batch's 0 records", id="more records than promised"),
        pytest.param("0c00000001010000", 1, "1 bytes follow", id="bytes after the last"),
        pytest.param("0e00000001010000", 1, "does not fill", id="slack inside the record"),
        pytest.param("0c000000030100", 1, "field of -2 bytes", id="key length -2"),
        pytest.param("0c000000010300", 1, "field of -2 bytes", id="value length -2"),
        pytest.param("0c000000010101", 1, "claims -1 headers", id="negative header count"),
        pytest.param("0c00000001017e", 1, "end inside", id="absurd header count"),
        pytest.param("100000000101020101", 1, "header without a key", id="header without a key"),
        pytest.param("0c000000640100", 1, "end inside|does not fill", id="key runs over the end"),
        pytest.param("1c00ffffffffffffffffffff00010100", 1, "does not fit into 64 bits", id="timestamp too wide"),
    ],
)
def test_damaged_records_are_refused(body: str, count: int, complaint: str) -> None:
    with pytest.raises(CorruptRecords, match=complaint) as caught:
        read_body(bytes.fromhex(body), count)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_negative_record_count_is_refused() -> None:
    with pytest.raises(CorruptRecords, match="-1 records"):
        read_body(b"", -1)


def test_a_batch_must_be_there_exactly() -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    for wrong in (batch[:-1], batch + b"x", batch[:40]):
        with pytest.raises(CorruptBatch):
            list(iter_records(wrong))


def test_an_older_format_is_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    batch[16] = 1
    with pytest.raises(CorruptBatch, match="v1 is not known"):
        list(iter_records(batch))
    with pytest.raises(CorruptBatch, match="v1 at byte 0"):
        list(iter_batches(batch))


def test_an_unknown_codec_is_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    struct.pack_into(">h", batch, 21, 6)
    with pytest.raises(BrokerError) as caught:
        list(iter_records(batch))
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_limit_on_inflating_is_the_callers() -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(10_000))], codec=Codec.GZIP)
    assert len(list(iter_records(batch, 20_000))) == 1
    with pytest.raises(InflatedTooLarge):
        list(iter_records(batch, 9_000))


def test_batches_one_after_the_other() -> None:
    first = build_batch([Record(7, NOW_MS, None, b"a"), Record(8, NOW_MS, None, b"b")])
    second = build_batch([Record(9, NOW_MS, None, b"c")], codec=Codec.LZ4)
    found = list(iter_batches(first + second))
    assert [bytes(batch.data) for batch in found] == [first, second]
    assert [batch.header.base_offset for batch in found] == [7, 9]
    assert [record.value for _, data in found for record in iter_records(data)] == [b"a", b"b", b"c"]


def test_a_cut_off_last_batch_is_left_out() -> None:
    first = build_batch([Record(0, NOW_MS, None, b"a")])
    second = build_batch([Record(1, NOW_MS, None, b"b" * 100)])
    whole = first + second
    for length in range(len(first), len(whole)):
        assert [batch.header.base_offset for batch in iter_batches(whole[:length])] == [0]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_batch_length_below_its_header_is_refused(length: int) -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"a")])
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch, match="less than its header"):
        list(iter_batches(batch))


@settings(max_examples=300)
@given(
    records=record_lists(),
    codec=st.sampled_from(Codec),
    damage=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.none() | st.integers(0, 5000),
)
def test_damage_raises_nothing_but_clear_errors(
    records: list[Record], codec: Codec, damage: list[tuple[int, int]], cut: int | None
) -> None:
    buffer = build_batch(records, codec=codec)
    for position, value in damage:
        buffer[position % len(buffer)] = value
    if cut is not None:
        del buffer[cut % len(buffer) :]
    try:
        for batch in iter_batches(buffer):
            list(iter_records(batch.data, 1 << 20))
        list(iter_records(buffer, 1 << 20))
    except BrokerError as error:
        assert error.message  # noqa: PT017 - what is raised must explain itself


@given(body=st.binary(max_size=80), count=st.integers(0, 5))
def test_arbitrary_bytes_raise_nothing_but_clear_errors(body: bytes, count: int) -> None:
    try:
        records = read_body(body, count)
    except CorruptRecords:
        return
    assert len(records) == count
