"""The time index: rising timestamps, found in the file without loading it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.time_index import TimeEntry, TimeIndex
from tidelog.testing.forgetful_fs import ForgetfulFilesystem

BASE = 1000

writes = st.lists(st.integers(-1, 200), max_size=40)


def filled(fs: ForgetfulFilesystem, timestamps: list[int], save_every: int) -> tuple[TimeIndex, list[TimeEntry]]:
    index, kept = TimeIndex(fs, "/0", BASE, 0), list[TimeEntry]()
    for at, timestamp in enumerate(timestamps):
        index.append(timestamp, BASE + at)
        if timestamp >= 0 and (not kept or timestamp > kept[-1].timestamp_ms):
            kept.append(TimeEntry(timestamp, BASE + at))
        if at % save_every == 0:
            index.save()
    return index, kept


@given(writes, st.integers(1, 10), st.integers(-2, 210))
def test_lookups_find_the_last_entry_that_is_not_later(timestamps: list[int], save_every: int, target: int) -> None:
    index, kept = filled(ForgetfulFilesystem(), timestamps, save_every)
    assert len(index) == len(kept)
    earlier = [each for each in kept if each.timestamp_ms <= target]
    assert index.before(target) == (earlier[-1] if earlier else None)
    assert index.last() == (kept[-1] if kept else None)
    assert index.sound()


@given(writes, st.integers(1, 10), st.integers(0, 45))
def test_a_cut_drops_the_entries_of_later_batches(timestamps: list[int], save_every: int, end: int) -> None:
    fs = ForgetfulFilesystem()
    index, kept = filled(fs, timestamps, save_every)
    index.truncate(BASE + end)
    left = [each for each in kept if each.offset < BASE + end]
    assert index.last() == (left[-1] if left else None)
    index.append(1000, BASE + 100)
    index.save()
    expected = [*left, TimeEntry(1000, BASE + 100)]
    content = fs.open("/0.timeindex").pread(9999, 0)
    assert content == b"".join(struct.pack(">qi", each.timestamp_ms, each.offset - BASE) for each in expected)


def test_a_long_tail_is_written_out(memory: ForgetfulFilesystem) -> None:
    index = TimeIndex(memory, "/0", 0, 0)
    for at in range(10_000):
        index.append(at, at)
    assert memory.open("/0.timeindex").size() > 60_000, "memory is not for entries that nobody looks at"
    assert index.before(5000) == (5000, 5000)
    assert index.last() == (9999, 9999)


def test_a_reopened_index_goes_on(memory: ForgetfulFilesystem) -> None:
    first = TimeIndex(memory, "/0", BASE, 0)
    first.append(5, BASE + 1)
    first.append(9, BASE + 4)
    first.save()
    again = TimeIndex(memory, "/0", BASE, 2)
    assert again.last() == (9, BASE + 4)
    again.append(9, BASE + 5)
    again.append(11, BASE + 6)
    again.save()
    assert TimeIndex(memory, "/0", BASE, 3).before(10) == (9, BASE + 4)


@pytest.mark.parametrize(
    ("content", "entries"),
    [
        (None, 1),
        (b"", 1),
        (bytes(24), 2),
        (b"\xff" * 24, 2),
        (struct.pack(">qiqi", 5, 1, 4, 2), 2),
        (struct.pack(">qiqi", 4, 2, 5, 1), 2),
        (struct.pack(">qi", 5, -3), 1),
        (b"", -1),
    ],
)
def test_what_was_never_written_so_is_unsound(memory: ForgetfulFilesystem, content: bytes | None, entries: int) -> None:
    if content is not None:
        memory.open("/0.timeindex", create=True).pwrite(content, 0)
    index = TimeIndex(memory, "/0", BASE, entries)
    assert not index.sound()
    index.clear()
    assert index.sound()


def test_a_file_cut_under_our_feet_is_an_error_not_a_guess(memory: ForgetfulFilesystem) -> None:
    index = TimeIndex(memory, "/0", BASE, 0)
    for at in range(4):
        index.append(at, BASE + at)
    index.save().truncate(12)
    with pytest.raises(OSError, match="shorter"):
        index.before(3)
