"""The batch header: layout, attribute bits, in-place patches, the checksum (facts of the v2 batch format)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    crc_of,
    crc_ok,
    patch,
    peek,
    stamp_append_time,
    write_crc,
)
from tidelog.records.record import Record, iter_records
from tidelog.types import LeaderEpoch, Offset, ProducerId

NOW_MS = 1_700_000_000_000


def sample_batch() -> bytearray:
    records = [Record(i, NOW_MS + i, b"key-%d" % i, b"value-%d" % i) for i in range(3)]
    return build_batch(records, producer_id=ProducerId(77), producer_epoch=5, base_sequence=11)


def header_with(
    attributes: int = 0,
    *,
    base_offset: int = 0,
    last_offset_delta: int = 0,
    producer_id: int = -1,
    base_sequence: int = -1,
    record_count: int = 1,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=49,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=-1,
        base_sequence=base_sequence,
        record_count=record_count,
    )


def test_each_field_lies_where_the_format_says() -> None:
    raw = bytearray(HEADER_SIZE + 3)
    struct.pack_into(">q", raw, 0, 1_000_000_000_001)
    struct.pack_into(">i", raw, 8, HEADER_SIZE + 3 - LOG_OVERHEAD)
    struct.pack_into(">i", raw, 12, 7)
    struct.pack_into(">b", raw, 16, 2)
    struct.pack_into(">I", raw, 17, 0xDEADBEEF)
    struct.pack_into(">h", raw, 21, 0b0001_0100)
    struct.pack_into(">i", raw, 23, 41)
    struct.pack_into(">q", raw, 27, NOW_MS)
    struct.pack_into(">q", raw, 35, NOW_MS + 9)
    struct.pack_into(">q", raw, 43, 4001)
    struct.pack_into(">h", raw, 51, 3)
    struct.pack_into(">i", raw, 53, 99)
    struct.pack_into(">i", raw, 57, 42)

    header = peek(raw)

    assert header == BatchHeader(
        base_offset=1_000_000_000_001,
        batch_length=52,
        leader_epoch=7,
        magic=2,
        crc=0xDEADBEEF,
        attributes=0b0001_0100,
        last_offset_delta=41,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 9,
        producer_id=4001,
        producer_epoch=3,
        base_sequence=99,
        record_count=42,
    )
    assert header.size == len(raw)


def test_peek_takes_a_position_and_any_buffer() -> None:
    batch = sample_batch()
    padded = bytes(5) + batch
    assert peek(padded, 5) == peek(batch) == peek(memoryview(batch)) == peek(bytes(batch))


@pytest.mark.parametrize("length", [0, 1, 12, 60])
def test_peek_refuses_less_than_a_header(length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"only {length} are left") as caught:
        peek(bytes(length))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("attributes", "codec", "names"),
    [
        (0b0000_0000, 0, set()),
        (0b0000_0001, 1, set()),
        (0b0000_0100, 4, set()),
        (0b0000_0111, 7, set()),
        (0b0000_1000, 0, {"log_append_time"}),
        (0b0001_0000, 0, {"transactional"}),
        (0b0010_0000, 0, {"control"}),
        (0b0100_0000, 0, {"has_delete_horizon"}),
        (0b0011_0011, 3, {"transactional", "control"}),
    ],
)
def test_attribute_bits(attributes: int, codec: int, names: set[str]) -> None:
    header = header_with(attributes)
    assert header.codec == codec
    flags = ("log_append_time", "transactional", "control", "has_delete_horizon")
    assert {name for name in flags if getattr(header, name)} == names


def test_the_next_offset_follows_the_delta_not_the_count() -> None:
    compacted = header_with(base_offset=100, last_offset_delta=9, record_count=0)
    assert (compacted.last_offset, compacted.next_offset) == (109, 110)


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(-1, 4, -1), (0, 0, 0), (5, 3, 8), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 4, 2)],
)
def test_the_sequence_wraps_to_zero(base: int, delta: int, last: int) -> None:
    assert header_with(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_idempotent_means_having_a_producer_id() -> None:
    assert header_with(producer_id=0).idempotent
    assert not header_with(producer_id=-1).idempotent


def test_crc_is_castagnoli_from_the_attributes_on() -> None:
    raw = bytearray(21) + b"123456789"
    assert crc_of(raw, 0, len(raw)) == 0xE3069283


@given(offset=st.integers(0, 2**63 - 1), epoch=st.integers(-1, 2**31 - 1), position=st.integers(0, 9))
def test_patching_offset_and_epoch_leaves_the_checksum_right(offset: int, epoch: int, position: int) -> None:
    plain = sample_batch()
    before = peek(plain)
    buffer = bytearray(position) + plain
    patch(memoryview(buffer), position, Offset(offset), LeaderEpoch(epoch))
    assert peek(buffer, position) == before._replace(base_offset=offset, leader_epoch=epoch)
    assert crc_ok(buffer, position, before.size)


def test_append_time_changes_attributes_timestamp_and_checksum() -> None:
    batch = sample_batch()
    before = peek(batch)

    stamp_append_time(batch, 0, NOW_MS + 5000)

    after = peek(batch)
    assert after.log_append_time
    assert after.max_timestamp == NOW_MS + 5000
    assert after.crc != before.crc
    assert crc_ok(batch, 0, len(batch))
    assert after._replace(attributes=before.attributes, max_timestamp=before.max_timestamp, crc=before.crc) == before
    assert [record.timestamp for record in iter_records(batch)] == [NOW_MS + 5000] * 3


def test_append_time_is_stamped_at_the_position_given() -> None:
    first, second = sample_batch(), sample_batch()
    both = first + second
    stamp_append_time(both, len(first), NOW_MS)
    assert both[: len(first)] == first
    assert crc_ok(both, len(first), len(second))


@given(position=st.integers(21, len(sample_batch()) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_of_the_covered_part_is_found(position: int, bit: int) -> None:
    batch = sample_batch()
    batch[position] ^= 1 << bit
    assert not crc_ok(batch, 0, len(batch))


@pytest.mark.parametrize("size", [-5, 0, HEADER_SIZE - 1, 10_000])
def test_crc_ok_is_false_for_sizes_that_cannot_be(size: int) -> None:
    assert not crc_ok(sample_batch(), 0, size)


def test_crc_ok_is_false_for_a_batch_that_runs_over_the_end() -> None:
    batch = sample_batch()
    assert not crc_ok(batch[:-1], 0, len(batch))


def test_write_crc_mends_a_changed_batch() -> None:
    batch = sample_batch()
    batch[-1] ^= 0xFF
    write_crc(batch, 0, len(batch))
    assert crc_ok(batch, 0, len(batch))
