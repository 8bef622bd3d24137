from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records.build import append_record, build_batch, record_size_max, seal_batch
from tidelog.records.compression import Codec
from tidelog.records.header import HEADER_SIZE, crc_ok, peek
from tidelog.records.record import Record, RecordHeaders, inflate, iter_records
from tidelog.types import LeaderEpoch, Offset, ProducerId

NOW_MS = 1_700_000_000_000
payloads = st.none() | st.binary(max_size=200)


def test_a_batch_byte_by_byte() -> None:
    batch = build_batch([Record(0, 1000, b"k", b"v"), Record(1, 1005, None, None, (("h", b"1"),))])
    assert batch == bytes.fromhex(
        "00 00 00 00 00 00 00 00"  # base offset
        "00 00 00 45"  # length from here on: 49 bytes of the header, 20 of records
        "ff ff ff ff"  # leader epoch
        "02"  # magic
        "3b 55 82 5a"  # checksum
        "00 00"  # attributes
        "00 00 00 01"  # last offset delta
        "00 00 00 00 00 00 03 e8"  # base timestamp
        "00 00 00 00 00 00 03 ed"  # max timestamp
        "ff ff ff ff ff ff ff ff"  # producer id
        "ff ff"  # producer epoch
        "ff ff ff ff"  # base sequence
        "00 00 00 02"  # record count
        "10 00 00 00 02 6b 02 76 00"
        "14 00 0a 02 01 01 02 02 68 02 31"
    )
    assert crc_ok(batch, 0, len(batch))


def test_every_field_a_caller_may_set() -> None:
    batch = build_batch(
        [Record(50, NOW_MS + 3, b"k", b"v"), Record(53, NOW_MS, b"k", b"v")],
        codec=Codec.GZIP,
        level=1,
        leader_epoch=LeaderEpoch(4),
        producer_id=ProducerId(9),
        producer_epoch=2,
        base_sequence=77,
        transactional=True,
    )
    header = peek(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (50, 3, 2)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 3, NOW_MS + 3)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence) == (4, 9, 2, 77)
    assert (header.codec, header.transactional, header.control, header.log_append_time) == (1, True, False, False)


def test_the_largest_timestamp_counts_not_the_last() -> None:
    records = [Record(0, 10, None, b""), Record(1, 99, None, b""), Record(2, 50, None, b"")]
    assert peek(build_batch(records)).max_timestamp == 99


def test_a_range_wider_than_its_records() -> None:
    batch = build_batch([Record(12, NOW_MS, None, b"")], base_offset=Offset(10), last_offset=Offset(19))
    assert (peek(batch).base_offset, peek(batch).next_offset) == (10, 20)
    assert [record.offset for record in iter_records(batch)] == [12]


def test_a_batch_without_records_or_range_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="range"):
        build_batch([])


@pytest.mark.parametrize("before", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("after", list(Codec), ids=lambda codec: codec.name)
def test_sealing_again_changes_the_codec_and_nothing_else(before: Codec, after: Codec) -> None:
    records = [Record(i, NOW_MS + i, b"k%d" % i, b"v" * 50) for i in range(20)]
    batch = build_batch(records, codec=before, transactional=True, producer_id=ProducerId(3), producer_epoch=0)
    header = peek(batch)
    again = seal_batch(header, inflate(batch, header), after)
    changed = peek(again)
    assert changed.codec == after
    assert changed.size == len(again)
    assert crc_ok(again, 0, len(again))
    assert changed._replace(batch_length=0, crc=0, attributes=0) == header._replace(batch_length=0, crc=0, attributes=0)
    assert changed.transactional
    assert list(iter_records(again)) == records


@given(
    st.integers(0, 2**31 - 1),
    st.integers(-(2**62), 2**62),
    payloads,
    payloads,
    st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4).map(tuple),
)
def test_the_size_given_and_the_largest_size_foreseen(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: RecordHeaders
) -> None:
    body = bytearray(b"before")
    size = append_record(body, offset_delta, timestamp_delta, key, value, headers=headers)
    assert len(body) == len(b"before") + size
    assert size <= record_size_max(key, value, headers)


def test_any_buffer_can_be_a_key_or_a_value() -> None:
    body = bytearray()
    append_record(body, 0, 0, memoryview(b"key"), bytearray(b"value"))
    expected = bytearray()
    append_record(expected, 0, 0, b"key", b"value")
    assert body == expected
    assert len(build_batch([Record(0, 0, b"key", b"value")])) == HEADER_SIZE + len(body)
