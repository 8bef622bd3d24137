"""Reading: whole batches, from anywhere, within limits, and cheaply for those who read on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_cases import (
    ALL,
    NOW_MS,
    Disk,
    append,
    append_values,
    batch_of,
    read_bytes,
    read_headers,
    read_values,
)

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import peek
from tidelog.records.record import iter_batches
from tidelog.testing.forgetful_fs import ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log


def filled(disk: Disk, batches: int = 10, records: int = 3, config: TopicConfig | None = None) -> Log:
    log = disk.open_log(config or TopicConfig(segment_bytes=1000, index_interval_bytes=100))
    for at in range(batches):
        append_values(log, *[b"%d" % (at * records + each) for each in range(records)])
    return log


def test_a_read_in_the_middle_of_a_batch_gives_the_whole_batch(disk: Disk) -> None:
    log = filled(disk)
    for offset in range(30):
        (header, _), *_ = iter_batches(read_bytes(log, offset))
        assert header.base_offset == offset // 3 * 3


@pytest.mark.parametrize("offset", [-1, 31, 2**40])
def test_offsets_outside_the_log_are_out_of_range(disk: Disk, offset: int) -> None:
    with pytest.raises(BrokerError) as refused:
        read_bytes(filled(disk), offset)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_end_of_the_log_is_within_range_and_empty(disk: Disk) -> None:
    assert read_bytes(filled(disk), 30) == b""


def test_offsets_before_the_log_start_are_out_of_range(disk: Disk) -> None:
    log = filled(disk)
    log.advance_log_start(4)
    with pytest.raises(BrokerError) as refused:
        read_bytes(log, 3)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    (header, _), *_ = iter_batches(read_bytes(log, 4))
    assert header.base_offset == 3, "batches are never cut"


@pytest.mark.parametrize("upto", range(31))
def test_nothing_at_or_beyond_the_bound_is_given(disk: Disk, upto: int) -> None:
    log = filled(disk)
    at = 0
    while data := read_bytes(log, at, ALL, upto):
        last = list(iter_batches(data))[-1].header
        assert last.next_offset <= upto
        at = last.next_offset
    assert at == upto // 3 * 3


def test_limits_cut_between_batches(disk: Disk) -> None:
    log = filled(disk, config=TopicConfig(index_interval_bytes=100))
    size = log.size_bytes // 10
    assert len(read_bytes(log, 0, size)) <= size
    for limit in range(size, log.size_bytes + size, 17):
        data = read_bytes(log, 0, limit)
        assert 0 < len(data) <= limit
        assert sum(each.header.size for each in iter_batches(data)) == len(data)
        # At most one index interval and one batch less than would fit.
        assert len(data) > min(limit, log.size_bytes) - size - 100 - size


def test_a_first_batch_beyond_the_limit_comes_alone_or_not_at_all(disk: Disk) -> None:
    log = filled(disk, config=TopicConfig())
    append_values(log, b"big" * 1000)
    assert read_bytes(log, 30, 100, min_one=False) == b""
    assert len(read_bytes(log, 30, 100, min_one=True)) > 3000
    assert len(list(iter_batches(read_bytes(log, 0, 0, min_one=True)))) == 1
    assert read_bytes(log, 0, 0, min_one=False) == b""


def test_reading_on_goes_through_all_segments(disk: Disk) -> None:
    log = filled(disk, batches=40)
    assert len(log.segments) > 3
    for limit in (1, 300, 5000):
        assert [each.base_offset for each in read_headers(log, max_bytes=limit)] == list(range(0, 120, 3))


def test_a_slice_says_where_it_starts_and_where_to_go_on(disk: Disk) -> None:
    log = filled(disk, config=TopicConfig())
    found = log.read(4, ALL, 20, True)
    assert found is not None
    assert (found.first_offset, found.next_offset) == (3, 18)
    assert found.slice.position == peek(read_bytes(log, 0)).size, "one batch is skipped"


def test_gaps_between_batches_and_segments_are_stepped_over(disk: Disk) -> None:
    """A compacted leader leaves gaps; whoever asks for a missing offset gets the next one."""
    log = disk.open_log(TopicConfig(segment_bytes=400, index_interval_bytes=1))
    bases = [0, 5, 9, 20, 21, 40]
    for base in bases:
        log.append_as_follower(batch_of([b"x" * 80], base_offset=base, leader_epoch=0), NOW_MS)
    assert len(log.segments) > 1
    for offset in range(41):
        (header, _), *_ = iter_batches(read_bytes(log, offset))
        assert header.base_offset == min(base for base in bases if base >= offset)


def test_a_slice_outlives_its_segment(disk: Disk) -> None:
    log = filled(disk, batches=40, config=TopicConfig(segment_bytes=1000, retention_bytes=0, file_delete_delay_ms=0))
    found = log.read(0, ALL, ALL, True)
    assert found is not None
    before = found.slice.read()
    log.apply_retention(NOW_MS)
    log.doomed.remove_due(NOW_MS)
    assert log.log_start_offset > 0
    assert found.slice.read() == before


def test_sequential_reading_does_not_search(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    """Each further piece costs at most one small read, to see which offset the next piece starts with."""
    log = filled(forgetful, batches=1000, config=TopicConfig(index_interval_bytes=500))
    at = 0
    found = log.read(at, 2000, ALL, True)
    pieces = 0
    before = memory.calls["read"]
    while found is not None:
        pieces += 1
        at = found.next_offset
        found = log.read(at, 2000, ALL, True)
    assert at == 3000
    assert pieces > 40
    assert memory.calls["read"] - before <= pieces


def test_the_high_watermark_after_a_flush_needs_no_search(forgetful: Disk, memory: ForgetfulFilesystem) -> None:
    log = filled(forgetful, batches=100, config=TopicConfig(index_interval_bytes=500))
    log.flush()
    watermark = log.flushed_offset
    append_values(log, b"not yet visible")
    log.read(0, ALL, watermark, True)
    before = memory.calls["read"]
    assert log.read(0, ALL, watermark, True) is not None
    assert memory.calls["read"] - before <= 1


def test_few_open_files_serve_many_segments(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_bytes=300), open_files_max=2)
    for at in range(20):
        append_values(log, b"%d " % at + b"x" * 150)
    assert len(log.segments) == 20
    assert len(read_values(log)) == 20
    assert len(log.room.files) <= 2


def test_index_memory_is_bounded(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_bytes=2000, index_interval_bytes=0), index_entries_max=30)
    for at in range(200):
        append_values(log, b"%d" % at)
    assert len(log.segments) > 5
    for at in range(0, 200, 7):
        assert read_values(log, at)[0] == b"%d" % at
    assert log.room.memory.entries <= 30 + 2000 // 70


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_read_equals_a_plain_search(data: st.DataObject) -> None:
    config = TopicConfig(
        segment_bytes=data.draw(st.integers(600, 4000)), index_interval_bytes=data.draw(st.integers(0, 800))
    )
    log = Disk(ForgetfulFilesystem(), "/data").open_log(config)
    batches: list[tuple[int, int, bytes]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        batch = batch_of([b"x" * data.draw(st.integers(0, 120)) for _ in range(data.draw(st.integers(1, 3)))])
        done = append(log, batch)
        batches.append((done.base_offset, done.last_offset, bytes(batch)))
    for _ in range(15):
        offset = data.draw(st.integers(0, log.log_end_offset - 1))
        upto = data.draw(st.integers(0, log.log_end_offset))
        max_bytes = data.draw(st.integers(0, 3000))
        min_one = data.draw(st.booleans())
        found = log.read(offset, max_bytes, upto, min_one)
        visible = [each for each in batches if each[1] >= offset and each[1] < upto]
        if found is None:
            assert not visible or offset >= upto or (not min_one and len(visible[0][2]) > max_bytes)
            continue
        got = found.slice.read()
        whole = b"".join(each[2] for each in visible)
        assert whole.startswith(got)
        assert len(got) <= max_bytes or (min_one and got == visible[0][2])
        assert found.first_offset == visible[0][0]
        assert found.next_offset == visible[0][0] + sum(each.header.last_offset_delta + 1 for each in iter_batches(got))
