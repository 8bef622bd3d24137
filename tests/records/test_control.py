from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.control import Marker, MarkerType, build_marker, parse_marker, read_marker
from tidelog.records.header import crc_ok, peek
from tidelog.records.record import CorruptRecords, Record, iter_records
from tidelog.types import LeaderEpoch, Offset, ProducerId

NOW_MS = 1_700_000_000_000
COMMIT = Marker(MarkerType.COMMIT, 6)
ABORT = Marker(MarkerType.ABORT, 2**31 - 1)


@pytest.mark.parametrize(
    ("marker", "key", "value"),
    [(COMMIT, "00000001", "000000000006"), (ABORT, "00000000", "00007fffffff")],
)
def test_a_marker_is_one_control_record_without_a_sequence(marker: Marker, key: str, value: str) -> None:
    batch = build_marker(marker, producer_id=ProducerId(31), producer_epoch=4, timestamp_ms=NOW_MS)
    header = peek(batch)
    assert crc_ok(batch, 0, len(batch))
    assert header.transactional
    assert header.control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (31, 4, -1)
    assert (header.record_count, header.last_offset_delta, header.codec) == (1, 0, 0)
    (record,) = iter_records(batch)
    assert record == Record(0, NOW_MS, bytes.fromhex(key), bytes.fromhex(value))
    assert read_marker(batch) == marker


def test_a_marker_takes_an_offset_and_an_epoch() -> None:
    batch = build_marker(
        COMMIT,
        producer_id=ProducerId(1),
        producer_epoch=0,
        timestamp_ms=NOW_MS,
        offset=Offset(500),
        leader_epoch=LeaderEpoch(9),
    )
    header = peek(batch)
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (500, 501, 9)


def test_commit_and_abort() -> None:
    assert COMMIT.committed
    assert not ABORT.committed


def test_data_is_no_marker() -> None:
    assert read_marker(build_batch([Record(0, NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\6")])) is None


def test_a_control_batch_emptied_by_compaction_holds_no_marker() -> None:
    assert read_marker(build_batch([], base_offset=Offset(4), last_offset=Offset(4), control=True)) is None


@pytest.mark.parametrize("kind", [2, 5, -1, 32767])
def test_unknown_kinds_are_skipped(kind: int) -> None:
    key = b"\0\0" + kind.to_bytes(2, "big", signed=True)
    assert parse_marker(key, None) is None


def test_later_versions_may_add_fields() -> None:
    assert parse_marker(b"\0\1\0\1more", b"\0\1\0\0\0\6more") == COMMIT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\6"),
        (b"", b"\0\0\0\0\0\6"),
        (b"\0\0\0", b"\0\0\0\0\0\6"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\6"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\6"),
    ],
)
def test_damaged_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecords) as caught:
        parse_marker(key, value)
    assert caught.value.code is ErrorCode.INVALID_RECORD
