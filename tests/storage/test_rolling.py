"""When a new segment begins, decided by figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
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


SMALL_CONFIGS = st.builds(
    TopicConfig,
    segment_bytes=st.integers(200, 4000),
    segment_index_bytes=st.integers(12, 120),
    index_interval_bytes=st.integers(0, 200),
    segment_ms=st.integers(1, 1000),
    segment_jitter_ms=st.integers(0, 1200),
)
BATCHES = st.lists(st.tuples(st.integers(61, 400), st.integers(-1, 2000), st.integers(1, 5)), min_size=1, max_size=30)


@given(SMALL_CONFIGS, BATCHES, st.integers(0, 29))
def test_what_is_easy_would_also_pass_the_closer_look(
    config: TopicConfig, batches: list[tuple[int, int, int]], look_at: int
) -> None:
    """The bounds are taken once, somewhere on the way, and hold for all that comes."""
    segment = segment_of(0)
    easy, next_offset = None, 0
    for at, (size, timestamp, records) in enumerate(batches):
        last_offset = next_offset + records - 1
        if segment.size and at >= look_at % len(batches):
            easy = easy or rolling.easy(segment, config)
            within = segment.size + size <= easy.size and last_offset <= easy.last_offset
            if within and 0 <= timestamp <= easy.max_timestamp:
                assert not rolling.is_full(segment, config, size, last_offset)
                assert not rolling.is_aged_by(segment, config, timestamp, NOW_MS, TP)
        segment.note(segment.write(bytes(size), size), size, last_offset, timestamp, config.index_interval_bytes)
        next_offset = last_offset + 1


def test_ordinary_batches_are_easy() -> None:
    segment = segment_of(3)
    easy = rolling.easy(segment, TopicConfig())
    assert easy.size == TopicConfig().segment_bytes
    assert easy.last_offset > 2**30
    assert easy.max_timestamp == NOW_MS + TopicConfig().segment_ms
    assert rolling.easy(segment_of(3, timestamp=-1), TopicConfig()).max_timestamp == -1


def test_a_cut_segment_is_looked_at_again() -> None:
    segment = segment_of(3)
    segment.easy = rolling.easy(segment, TopicConfig())
    segment.truncate(0, 0)
    assert segment.easy is None
