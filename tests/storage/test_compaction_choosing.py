"""Which log is cleaned, how far, and which segments become one, by tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.topic import TopicConfig
from tidelog.storage.compaction.choosing import (
    Cleanable,
    SegmentFacts,
    cleanable,
    dirtiest,
    group,
    is_worth_it,
    must_roll,
)

NOW_MS = 1_000_000
NEVER_MS = 2**63 - 1
ANY_BYTES = 1 << 40


def segment(base: int, end: int, size: int = 100, **facts: int) -> SegmentFacts:
    return SegmentFacts(base, end, size, facts.pop("index_bytes", 8), **facts)


THREE = [segment(0, 10), segment(10, 20), segment(20, 30)]
"""Closed segments; the active one begins at 30."""


def look(segments: list[SegmentFacts], config: TopicConfig | None = None, **options: Any) -> Cleanable:
    facts = {"clean_offset": 0, "log_start_offset": 0, "log_end_offset": 40, "upto": 40, "now_ms": NOW_MS, **options}
    return cleanable(segments, config or TopicConfig(cleanup_policy=frozenset({"compact"})), **facts)


@pytest.mark.parametrize(
    ("options", "first_dirty", "upper", "clean_bytes", "dirty_bytes"),
    [
        ({}, 0, 30, 0, 300),
        ({"clean_offset": 10}, 10, 30, 100, 200),
        ({"clean_offset": 15}, 15, 30, 100, 200),
        ({"clean_offset": 30}, 30, 30, 300, 0),
        ({"clean_offset": 35}, 35, 35, 300, 0),
        ({"upto": 30}, 0, 30, 0, 300),
        ({"upto": 29}, 0, 20, 0, 200),
        ({"upto": 9}, 0, 0, 0, 0),
        ({"upto": 0, "clean_offset": 20}, 20, 20, 200, 0),
        ({"clean_offset": 5, "log_start_offset": 12}, 12, 30, 100, 200),
        ({"clean_offset": 99}, 0, 30, 0, 300),
        ({"clean_offset": 99, "log_start_offset": 12}, 12, 30, 100, 200),
    ],
)
def test_what_can_be_cleaned(
    options: dict[str, Any], first_dirty: int, upper: int, clean_bytes: int, dirty_bytes: int
) -> None:
    found = look(THREE, **options)
    assert found == Cleanable(first_dirty, upper, clean_bytes, dirty_bytes, overdue=False)


@pytest.mark.parametrize(
    ("lag_ms", "upper"),
    [(0, 30), (100, 30), (101, 20), (200, 20), (201, 10), (10_000, 0)],
)
def test_young_records_are_left_alone(lag_ms: int, upper: int) -> None:
    segments = [
        segment(0, 10, largest_timestamp_ms=NOW_MS - 9999),
        segment(10, 20, largest_timestamp_ms=NOW_MS - 200),
        segment(20, 30, largest_timestamp_ms=NOW_MS - 100),
    ]
    assert look(segments, TopicConfig(min_compaction_lag_ms=lag_ms)).upper == upper


def test_one_young_segment_protects_all_that_follow_it() -> None:
    segments = [segment(0, 10, largest_timestamp_ms=NOW_MS), segment(10, 20, largest_timestamp_ms=0)]
    assert look(segments, TopicConfig(min_compaction_lag_ms=1)).upper == 0


@pytest.mark.parametrize(
    ("clean_offset", "max_lag_ms", "overdue"),
    [(0, 500, True), (0, 999, True), (0, 1000, False), (0, NEVER_MS, False), (10, 500, False), (10, 99, True)],
)
def test_old_dirty_records_are_overdue(clean_offset: int, max_lag_ms: int, overdue: bool) -> None:
    segments = [segment(0, 10, first_timestamp_ms=NOW_MS - 1000), segment(10, 20, first_timestamp_ms=NOW_MS - 100)]
    found = look(segments, TopicConfig(max_compaction_lag_ms=max_lag_ms), clean_offset=clean_offset)
    assert found.overdue is overdue


def test_records_without_timestamps_are_never_overdue() -> None:
    assert not look([segment(0, 10)], TopicConfig(max_compaction_lag_ms=1)).overdue


def test_the_least_lag_holds_even_where_the_greatest_is_less() -> None:
    segments = [segment(0, 10, first_timestamp_ms=NOW_MS - 50, largest_timestamp_ms=NOW_MS - 50)]
    found = look(segments, TopicConfig(max_compaction_lag_ms=10, min_compaction_lag_ms=50))
    assert (found.upper, found.overdue) == (10, False)


@pytest.mark.parametrize(
    ("clean_bytes", "dirty_bytes", "overdue", "ratio", "worth_it"),
    [
        (50, 50, False, 0.5, False),
        (49, 51, False, 0.5, True),
        (0, 1, False, 0.99, True),
        (0, 1, False, 1.0, False),
        (100, 0, False, 0.0, False),
        (100, 1, False, 0.0, True),
        (100, 1, True, 0.5, True),
        (100, 0, True, 0.5, False),
    ],
)
def test_when_it_is_worth_it(clean_bytes: int, dirty_bytes: int, overdue: bool, ratio: float, worth_it: bool) -> None:
    found = Cleanable(0, 10, clean_bytes, dirty_bytes, overdue)
    assert is_worth_it(found, TopicConfig(min_cleanable_dirty_ratio=ratio)) is worth_it


def test_the_dirtiest_goes_first_and_overdue_ones_before_it() -> None:
    half = ("half", Cleanable(0, 1, 50, 50, overdue=False))
    most = ("most", Cleanable(0, 1, 10, 90, overdue=False))
    late = ("late", Cleanable(0, 1, 90, 10, overdue=True))
    assert dirtiest([]) is None
    assert dirtiest([half, most]) == "most"
    assert dirtiest([half, most, late]) == "late"


@pytest.mark.parametrize(
    ("size_bytes", "first_ms", "max_lag_ms", "min_lag_ms", "rolls"),
    [
        (1, NOW_MS - 101, 100, 0, True),
        (1, NOW_MS - 100, 100, 0, False),
        (0, NOW_MS - 101, 100, 0, False),
        (1, -1, 100, 0, False),
        (1, 0, NEVER_MS, 0, False),
        (1, NOW_MS - 101, 100, 200, False),
    ],
)
def test_when_the_active_segment_is_closed(
    size_bytes: int, first_ms: int, max_lag_ms: int, min_lag_ms: int, rolls: bool
) -> None:
    config = TopicConfig(max_compaction_lag_ms=max_lag_ms, min_compaction_lag_ms=min_lag_ms)
    assert must_roll(config, size_bytes, first_ms, NOW_MS) is rolls


@pytest.mark.parametrize(
    ("segment_bytes", "index_bytes", "end_offset", "expected"),
    [
        (1000, 1000, 30, [[0, 10, 20]]),
        (300, 1000, 30, [[0, 10, 20]]),
        (299, 1000, 30, [[0, 10], [20]]),
        (199, 1000, 30, [[0], [10], [20]]),
        (1, 1000, 30, [[0], [10], [20]]),
        (1000, 16, 30, [[0, 10], [20]]),
        (1000, 1000, 20, [[0, 10]]),
        (1000, 1000, 21, [[0, 10, 20]]),
        (1000, 1000, 0, []),
    ],
)
def test_which_segments_become_one(
    segment_bytes: int, index_bytes: int, end_offset: int, expected: list[list[int]]
) -> None:
    groups = group(THREE, segment_bytes, index_bytes, end_offset)
    assert [[each.base_offset for each in run] for run in groups] == expected


def test_offsets_of_one_segment_must_fit_its_index() -> None:
    far = [segment(0, 10), segment(10, 2**31 - 1), segment(2**31 - 1, 2**31), segment(2**31, 2**31 + 5)]
    assert [len(run) for run in group(far, ANY_BYTES, ANY_BYTES, 2**40)] == [2, 2]


@given(
    sizes=st.lists(st.integers(0, 200), max_size=20),
    segment_bytes=st.integers(1, 300),
    share=st.floats(0, 1),
)
def test_groups_are_the_segments_in_order(sizes: list[int], segment_bytes: int, share: float) -> None:
    segments = [segment(at * 10, at * 10 + 10, size) for at, size in enumerate(sizes)]
    end_offset = int(len(sizes) * 10 * share)
    groups = group(segments, segment_bytes, ANY_BYTES, end_offset)
    assert [each for run in groups for each in run] == [each for each in segments if each.base_offset < end_offset]
    assert all(run for run in groups)
    assert all(len(run) == 1 or sum(each.size_bytes for each in run) <= segment_bytes for run in groups)
