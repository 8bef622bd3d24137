"""The sparse offset index: what is looked up, what is on disk, what is not believed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.index_memory import IndexMemory
from tidelog.storage.offset_index import MISSING, IndexEntry, OffsetIndex
from tidelog.testing.forgetful_fs import ForgetfulFilesystem

BASE = 1000


def new_index(fs: ForgetfulFilesystem, entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex(fs, "/0", BASE, IndexMemory(10**6), 0)
    assert index.load(0)
    for relative, position in entries:
        index.append(BASE + relative, position)
    return index


rising = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), max_size=30).map(
    lambda steps: [
        (sum(step[0] for step in steps[: at + 1]), sum(step[1] for step in steps[: at + 1])) for at in range(len(steps))
    ]
)


@given(rising, st.integers(-10, 1600), st.booleans())
def test_lookups_find_the_last_entry_that_is_not_beyond(entries: list[tuple[int, int]], at: int, saved: bool) -> None:
    fs = ForgetfulFilesystem()
    index = new_index(fs, entries)
    if saved:
        index.unload()
        assert index.load(10**6)
    by_offset = [each for each in entries if each[0] <= max(0, at)]
    by_position = [each for each in entries if each[1] <= at]
    assert index.before_offset(BASE + at) == _absolute(by_offset)
    assert index.before_position(at) == _absolute(by_position)


def _absolute(entries: list[tuple[int, int]]) -> IndexEntry | None:
    return IndexEntry(BASE + entries[-1][0], entries[-1][1]) if entries else None


def test_the_file_is_kafkas(memory: ForgetfulFilesystem) -> None:
    index = new_index(memory, [(3, 100), (9, 300)])
    assert not memory.exists("/0.index"), "nothing is written on the way of an append"
    index.save()
    index.append(BASE + 12, 500)
    index.save()
    assert memory.open("/0.index").pread(99, 0) == struct.pack(">iiiiii", 3, 100, 9, 300, 12, 500)


def test_an_offset_beyond_32_bits_is_looked_up_as_the_last(memory: ForgetfulFilesystem) -> None:
    index = new_index(memory, [(3, 100)])
    assert index.before_offset(BASE + 2**40) == (BASE + 3, 100)


@given(rising, st.integers(0, 12_000))
def test_a_cut_drops_what_points_behind_it(entries: list[tuple[int, int]], log_size: int) -> None:
    fs = ForgetfulFilesystem()
    index = new_index(fs, entries)
    index.save()
    index.truncate(log_size)
    kept = [each for each in entries if each[1] < log_size]
    assert len(index) == len(kept)
    index.append(BASE + 2**20, 2**20)
    index.unload()
    assert index.load(2**21)
    assert len(index) == len(kept) + 1
    assert index.before_position(log_size) == _absolute(kept)


@pytest.mark.parametrize(
    ("content", "entries", "log_size"),
    [
        (b"", 1, 1000),
        (bytes(16), 2, 1000),
        (b"\xff" * 16, 2, 1000),
        (struct.pack(">iiii", 5, 100, 3, 200), 2, 1000),
        (struct.pack(">iiii", 3, 200, 5, 100), 2, 1000),
        (struct.pack(">ii", 3, 1000), 1, 1000),
        (b"", MISSING, 1000),
    ],
)
def test_what_cannot_belong_to_the_log_is_not_loaded(
    memory: ForgetfulFilesystem, content: bytes, entries: int, log_size: int
) -> None:
    memory.open("/0.index", create=True).pwrite(content, 0)
    index = OffsetIndex(memory, "/0", BASE, IndexMemory(100), entries)
    assert not index.load(log_size)
    assert len(index) == 0
    index.append(BASE + 1, 10)
    index.save()
    assert memory.open("/0.index").pread(99, 0) == struct.pack(">ii", 1, 10), "and is overwritten"


def test_a_file_that_vanished_is_not_loaded(memory: ForgetfulFilesystem) -> None:
    assert not OffsetIndex(memory, "/0", BASE, IndexMemory(100), 3).load(1000)
