"""When a new segment begins, decided by figures."""

from __future__ import annotations

import pytest
from storage_cases import NOW_MS, batch_of

from tidelog.config.topic import TopicConfig
from tidelog.records.header import peek
from tidelog.storage import rolling
from tidelog.storage.index_memory import IndexMemory
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.segment import Segment, SegmentFiles
from tidelog.testing.forgetful_fs import ForgetfulFilesystem
from tidelog.types import TopicPartition

TP = TopicPartition("t", 0)


def segment_of(records: int, timestamp: int = NOW_MS) -> Segment:
    fs = ForgetfulFilesystem()
    segment = Segment(fs, "/0", SegmentFiles(0), OpenFiles(fs, 3), IndexMemory(1000))
    segment.create(NOW_MS)
    if records:
        batch = batch_of([b"x"] * records, timestamp=timestamp, step_ms=0)
        position = segment.write(batch, len(batch))
        segment.note(position, len(batch), records - 1, peek(batch).max_timestamp, 4096)
    return segment


def test_a_segment_is_full_when_the_next_batch_does_not_fit() -> None:
    segment = segment_of(3)
    exactly = TopicConfig(segment_bytes=segment.size + 100)
    assert not rolling.is_full(segment, exactly, 100, 5)
    assert rolling.is_full(segment, exactly, 101, 5)
    assert rolling.room_bytes(segment, exactly) == 100


def test_positions_must_fit_32_bits_whatever_the_settings() -> None:
    segment = segment_of(3)
    segment.size = 2**31 - 100
    assert rolling.is_full(segment, TopicConfig(segment_bytes=2**40), 100, 5)
    assert not rolling.is_full(segment, TopicConfig(segment_bytes=2**40), 99, 5)


@pytest.mark.parametrize("records", [0, 3])
def test_offsets_must_fit_32_bits(records: int) -> None:
    segment = segment_of(records)
    assert not rolling.is_full(segment, TopicConfig(), 100, 2**31 - 1)
    assert rolling.is_full(segment, TopicConfig(), 100, 2**31)


def test_an_empty_segment_takes_any_size_and_any_time() -> None:
    segment = segment_of(0)
    assert not rolling.is_full(segment, TopicConfig(segment_bytes=10), 100, 5)
    assert not rolling.is_aged_by(segment, TopicConfig(segment_ms=1), NOW_MS * 2, NOW_MS * 2, TP)
    assert not rolling.is_aged(segment, TopicConfig(segment_ms=1), NOW_MS * 2, TP)


def test_age_is_the_distance_of_records_if_they_have_times() -> None:
    config = TopicConfig(segment_ms=100)
    old = segment_of(1, timestamp=5000)
    assert not rolling.is_aged_by(old, config, 5100, NOW_MS * 2, TP), "replaying old data rolls as it did before"
    assert rolling.is_aged_by(old, config, 5101, NOW_MS, TP)
    untimed = segment_of(1, timestamp=-1)
    assert not rolling.is_aged_by(untimed, config, 10**15, NOW_MS + 100, TP)
    assert rolling.is_aged_by(untimed, config, -1, NOW_MS + 101, TP)


def test_jitter_spreads_partitions_and_stays_the_same() -> None:
    config = TopicConfig(segment_ms=1000, segment_jitter_ms=500)
    segment = segment_of(1)
    limits = {rolling.age_limit_ms(segment, config, TopicPartition("t", at)) for at in range(50)}
    assert all(500 < limit <= 1000 for limit in limits)
    assert len(limits) > 30
    assert limits == {rolling.age_limit_ms(segment, config, TopicPartition("t", at)) for at in range(50)}
    assert rolling.age_limit_ms(segment, TopicConfig(segment_ms=1000), TP) == 1000
