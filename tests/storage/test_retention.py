"""What may go and what stays: by table, then through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk, append_values, read_values

from tidelog.config.topic import TopicConfig
from tidelog.storage.retention import Choice, SegmentFacts, choose
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log

DAY_MS = 24 * 3600 * 1000
KEEP_ALL = TopicConfig(retention_ms=-1, retention_bytes=-1)
NOTHING = Choice(0, roll_first=False)


def facts(*segments: tuple[int, int]) -> list[SegmentFacts]:
    """Ten records each, from (bytes, largest timestamp); the last one is active."""
    return [
        SegmentFacts((at + 1) * 10, size, timestamp, active=at == len(segments) - 1)
        for at, (size, timestamp) in enumerate(segments)
    ]


def decide(
    segments: list[SegmentFacts],
    config: TopicConfig,
    *,
    log_start: int = 0,
    upto: int | None = None,
    now_ms: int = 1000,
) -> Choice:
    size = sum(each.size_bytes for each in segments)
    end = segments[-1].next_offset if upto is None else upto
    return choose(segments, config, now_ms=now_ms, size_bytes=size, log_start_offset=log_start, upto=end)


def test_a_segment_is_as_old_as_its_youngest_record() -> None:
    config = TopicConfig(retention_ms=100)
    segments = facts((5, 800), (5, 899), (5, 900), (5, 1000))
    assert decide(segments, config) == Choice(2, roll_first=False)


def test_retention_stops_at_the_first_segment_that_stays() -> None:
    segments = facts((5, 950), (5, 100), (5, 1000))
    assert decide(segments, TopicConfig(retention_ms=100)) == NOTHING


@pytest.mark.parametrize(("retention_bytes", "gone"), [(30, 0), (29, 0), (25, 0), (20, 1), (19, 1), (11, 1), (10, 2)])
def test_the_log_keeps_at_least_its_bytes(retention_bytes: int, gone: int) -> None:
    segments = facts((10, 1000), (10, 1000), (10, 1000))
    assert decide(segments, TopicConfig(retention_bytes=retention_bytes)).oldest == gone


def test_an_expired_active_segment_is_rolled_first() -> None:
    segments = facts((5, 100), (5, 200))
    assert decide(segments, TopicConfig(retention_ms=100)) == Choice(2, roll_first=True)


def test_an_empty_active_segment_stays() -> None:
    assert decide(facts((0, -1)), TopicConfig(retention_ms=0, retention_bytes=0)) == NOTHING
    assert decide(facts((5, 100), (0, -1)), TopicConfig(retention_ms=100)) == Choice(1, roll_first=False)


def test_segments_before_the_log_start_go_whatever_the_policy() -> None:
    compacted = TopicConfig(cleanup_policy=frozenset({"compact"}), retention_ms=0, retention_bytes=0)
    segments = facts((5, 1000), (5, 1000), (5, 1000))
    assert decide(segments, compacted, log_start=9) == NOTHING
    assert decide(segments, compacted, log_start=10).oldest == 1
    assert decide(segments, compacted, log_start=30) == Choice(3, roll_first=True)


def test_what_is_not_safe_yet_stays() -> None:
    segments = facts((5, 100), (5, 100), (5, 1000))
    assert decide(segments, TopicConfig(retention_ms=100), upto=19).oldest == 1


def test_unlimited_means_unlimited() -> None:
    assert decide(facts((5, 0), (5, 0)), KEEP_ALL, now_ms=2**60) == NOTHING


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 1000)), min_size=1, max_size=8),
    st.integers(-1, 300),
    st.integers(-1, 1200),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_the_choice_is_always_a_safe_run_from_the_oldest(
    segments: list[tuple[int, int]], retention_bytes: int, retention_ms: int, log_start: int, upto: int
) -> None:
    given_facts = facts(*segments)
    config = TopicConfig(retention_bytes=retention_bytes, retention_ms=retention_ms)
    choice = decide(given_facts, config, log_start=log_start, upto=upto)
    gone = given_facts[: choice.oldest]
    assert all(each.next_offset <= upto for each in gone)
    assert choice.roll_first == (choice.oldest == len(given_facts))
    for place, each in enumerate(gone):
        left = sum(later.size_bytes for later in given_facts[place + 1 :])
        expired = retention_ms >= 0 and 1000 - each.largest_timestamp_ms > retention_ms
        assert expired or each.next_offset <= log_start or left >= retention_bytes >= 0


# -- through the log ----------------------------------------------------------------------------------------------


def aged(disk: Disk, config: TopicConfig, days: list[int]) -> Log:
    """One segment of two records for each entry, that many days old."""
    log = disk.open_log(config)
    for at, age in enumerate(days):
        append_values(log, b"%d" % at, b"x", timestamp=NOW_MS - age * DAY_MS)
        if at < len(days) - 1:
            log.roll(NOW_MS)
    return log


def test_seven_days_are_kept_by_default(disk: Disk) -> None:
    log = aged(disk, TopicConfig(), [9, 8, 6, 0])
    assert log.apply_retention(NOW_MS) == 2
    assert log.log_start_offset == 4
    assert read_values(log) == [b"2", b"x", b"3", b"x"]
    assert log.apply_retention(NOW_MS) == 0


def test_deleted_files_stay_renamed_for_a_while(disk: Disk) -> None:
    log = aged(disk, TopicConfig(file_delete_delay_ms=1000), [9, 0])
    log.apply_retention(NOW_MS)
    first = "00000000000000000000"
    assert disk.files(".deleted") == [f"{first}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]
    assert log.doomed.remove_due(NOW_MS + 999) == 0
    assert log.doomed.remove_due(NOW_MS + 1000) == 3
    assert disk.files(".deleted") == []
    assert not any(name.startswith(first) for name in disk.files())


def test_the_active_segment_is_rolled_when_it_alone_has_expired(disk: Disk) -> None:
    log = aged(disk, TopicConfig(), [9])
    assert log.apply_retention(NOW_MS) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (2, 2, 0)
    assert append_values(log, b"new").base_offset == 2
    assert read_values(log) == [b"new"]


def test_without_timestamps_the_last_write_counts(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(retention_ms=1000))
    append_values(log, b"a", timestamp=-1, step_ms=0)
    assert log.apply_retention(NOW_MS + 1000) == 0
    assert log.apply_retention(NOW_MS + 1001) == 1


def test_size_is_counted_per_partition(disk: Disk) -> None:
    log = aged(disk, TopicConfig(retention_ms=-1), [0] * 5)
    segment_bytes = log.size_bytes // 5
    log.config = TopicConfig(retention_ms=-1, retention_bytes=2 * segment_bytes + 1)
    assert log.apply_retention(NOW_MS) == 2
    assert log.size_bytes == 3 * segment_bytes


def test_nothing_beyond_the_high_watermark_goes(disk: Disk) -> None:
    log = aged(disk, TopicConfig(), [9, 9, 9])
    assert log.apply_retention(NOW_MS, upto=3) == 1
    assert log.log_start_offset == 2


def test_the_largest_timestamp_counts_not_the_last(disk: Disk) -> None:
    log = disk.open_log()
    append_values(log, b"young", timestamp=NOW_MS)
    append_values(log, b"old", timestamp=NOW_MS - 30 * DAY_MS)
    log.roll(NOW_MS)
    assert log.apply_retention(NOW_MS + 6 * DAY_MS) == 0
    assert log.apply_retention(NOW_MS + 8 * DAY_MS) == 1


def test_the_largest_timestamp_is_known_after_a_restart(disk: Disk) -> None:
    store = disk.open_store(TopicConfig())
    log = store.create(TP, TOPIC_ID, TopicConfig())
    append_values(log, b"young", timestamp=NOW_MS)
    append_values(log, b"old", timestamp=NOW_MS - 30 * DAY_MS)
    store.close()
    reopened = disk.open_log()
    assert reopened.apply_retention(NOW_MS + 6 * DAY_MS) == 0
    append_values(reopened, b"older", timestamp=NOW_MS - 40 * DAY_MS)
    assert reopened.apply_retention(NOW_MS + 6 * DAY_MS) == 0
    assert reopened.apply_retention(NOW_MS + 8 * DAY_MS) == 1


def test_deleted_records_give_their_space_back(disk: Disk) -> None:
    log = aged(disk, KEEP_ALL, [0, 0, 0])
    log.advance_log_start(3)
    assert log.apply_retention(NOW_MS) == 1
    log.advance_log_start(6)
    assert log.apply_retention(NOW_MS) == 2
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (6, 6, 0)


def test_what_is_left_after_retention_survives_a_crash(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    log = aged(forgetful, TopicConfig(), [9, 8, 6, 0])
    log.flush()
    log.apply_retention(NOW_MS)
    memory.crash(Forget.SOMETHING)
    reopened = forgetful.open_log()
    assert reopened.log_end_offset == 8
    assert read_values(reopened)[-4:] == [b"2", b"x", b"3", b"x"]
