"""One segment: written, found, cut, and its indexes believed only as far as the log bears them out."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import pytest
from storage_cases import NOW_MS, batch_of

from tidelog.records.header import peek
from tidelog.storage.index_memory import IndexMemory
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.segment import Segment, SegmentFiles, remove_files
from tidelog.storage.walk import Damage

if TYPE_CHECKING:
    from tidelog.testing.forgetful_fs import ForgetfulFilesystem

BASE = 100
STEM = f"/{BASE:020d}"


def new_segment(fs: ForgetfulFilesystem) -> Segment:
    segment = Segment(fs, STEM, SegmentFiles(BASE), OpenFiles(fs, 3), IndexMemory(1000))
    segment.create(NOW_MS)
    return segment


def reopened(fs: ForgetfulFilesystem) -> Segment:
    """As a directory listing shows it."""
    sizes = {each.name: each.size for each in fs.scan("/")}
    name = STEM[1:]
    found = SegmentFiles(
        BASE, sizes[f"{name}.log"], sizes.get(f"{name}.index", -1), sizes.get(f"{name}.timeindex", -1), NOW_MS
    )
    return Segment(fs, STEM, found, OpenFiles(fs, 3), IndexMemory(1000))


def fill(segment: Segment, count: int, *, timestamps: list[int] | None = None) -> list[int]:
    """Batches of two records; returns where each starts."""
    positions = []
    for at in range(count):
        timestamp = timestamps[at] if timestamps else NOW_MS + at
        batch = batch_of([b"x" * 40] * 2, base_offset=BASE + 2 * at, leader_epoch=0, timestamp=timestamp, step_ms=0)
        header = peek(batch)
        position = segment.write(batch, len(batch))
        segment.note(position, len(batch), header.last_offset, header.max_timestamp, 200)
        positions.append(position)
    return positions


@pytest.mark.parametrize("again", [False, True])
def test_every_offset_is_found_in_its_batch(memory: ForgetfulFilesystem, *, again: bool) -> None:
    segment = new_segment(memory)
    positions = fill(segment, 20)
    if again:
        segment.save_indexes()
        segment = reopened(memory)
    for offset in range(BASE, BASE + 40):
        place = segment.find(offset)
        assert place is not None
        assert place.position == positions[(offset - BASE) // 2]
        assert place.base_offset <= offset <= place.last_offset
    assert segment.find(BASE + 40) is None
    assert segment.find(0) == segment.find(BASE)


def test_finding_reads_a_little_and_not_the_segment(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    fill(segment, 2000)
    before = memory.calls["read"]
    for offset in range(BASE, BASE + 4000, 97):
        segment.find(offset)
    assert memory.calls["read"] - before <= 4000 // 97 + 1


@pytest.mark.parametrize("field", [0, 1], ids=["another batch", "the middle of a batch"])
def test_an_index_that_lies_is_rebuilt_when_it_is_caught(
    memory: ForgetfulFilesystem, caplog: pytest.LogCaptureFixture, field: int
) -> None:
    segment = new_segment(memory)
    positions = fill(segment, 20)
    segment.save_indexes()
    index = memory.open(f"{STEM}.index")
    entries = [list(each) for each in struct.iter_unpack(">ii", index.pread(9999, 0))]
    for entry in entries:
        entry[field] += 1
    index.pwrite(b"".join(struct.pack(">ii", *each) for each in entries), 0)
    segment = reopened(memory)
    with caplog.at_level(logging.WARNING):
        place = segment.find(BASE + 25)
    assert place is not None
    assert place.position == positions[12]
    assert "rebuilding the indexes" in caplog.text


def test_a_damaged_batch_does_not_cost_the_index_that_leads_past_it(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    positions = fill(segment, 20)
    segment.save_indexes()
    memory.open(f"{STEM}.log").pwrite(bytes(60), positions[6])
    segment = reopened(memory)
    with pytest.raises(Damage):
        segment.find(BASE + 12)
    place = segment.find(BASE + 38)
    assert place is not None
    assert place.position == positions[19]
    first = segment.read(BASE, BASE + 40, BASE + 40, 100, min_one=True)
    assert first is not None


def test_what_lies_before_a_damage_can_be_read(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    positions = fill(segment, 20)
    segment.save_indexes()
    memory.open(f"{STEM}.log").pwrite(bytes(60), positions[6])
    segment = reopened(memory)
    at, data = BASE, b""
    while at < BASE + 12:
        found = segment.read(at, BASE + 40, BASE + 40, positions[2], min_one=True)
        assert found is not None
        data += found.slice.read()
        at = found.next_offset
    assert at == BASE + 12
    assert data == memory.open(f"{STEM}.log").pread(positions[6], 0)


def test_a_cut_shortens_log_and_indexes(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    positions = fill(segment, 20, timestamps=[5, 9, 30, *range(10, 27)])
    segment.save_indexes()
    segment.truncate(positions[2], BASE + 4)
    assert segment.size == positions[2]
    assert memory.open(f"{STEM}.log").size() == positions[2]
    assert segment.largest_timestamp() == 9
    assert segment.offset_of_largest_timestamp() == BASE + 3
    assert segment.find(BASE + 4) is None
    segment.save_indexes()
    again = reopened(memory)
    assert again.largest_timestamp() == 9
    assert again.find(BASE + 3) is not None


def test_the_largest_timestamp_is_found_behind_the_last_entry_after_a_cut(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    positions = fill(segment, 6, timestamps=[10, 20, 5, 7, 50, 60])
    segment.truncate(positions[5], BASE + 10)
    assert segment.largest_timestamp() == 50
    segment.truncate(positions[4], BASE + 8)
    assert segment.largest_timestamp() == 20
    segment.truncate(0, BASE)
    assert segment.largest_timestamp() == -1


def test_the_age_of_a_segment_counts_from_its_first_batch(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    assert segment.rolling_timestamp() == -1
    fill(segment, 3, timestamps=[77, 5, 99])
    assert segment.rolling_timestamp() == 77
    assert reopened(memory).rolling_timestamp() == 77


def test_hints_are_bounded(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    for offset in range(1000):
        segment.remember(offset, offset)
    assert len(segment._hints) <= 32


def test_indexes_are_written_only_when_something_changed(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    assert segment.save_indexes() == ()
    fill(segment, 3)
    assert len(segment.save_indexes()) == 2
    assert segment.save_indexes() == ()
    assert reopened(memory).save_indexes() == ()


def test_an_empty_log_believes_no_index(memory: ForgetfulFilesystem) -> None:
    memory.open(f"{STEM}.log", create=True)
    memory.open(f"{STEM}.index", create=True).pwrite(struct.pack(">ii", 3, 0), 0)
    segment = reopened(memory)
    assert segment.find(BASE) is None
    fill(segment, 3)
    assert segment.find(BASE + 5) is not None


def test_files_are_removed_whether_or_not_they_are_there(memory: ForgetfulFilesystem) -> None:
    segment = new_segment(memory)
    fill(segment, 3)
    segment.save_indexes()
    remove_files(memory, STEM)
    remove_files(memory, STEM)
    assert memory.scan("/") == []
