"""The pool of open files, and the bound on index memory: few stay, the rest comes back when asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.fs import FileSlice
from tidelog.storage.index_memory import IndexMemory
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.open_files import OpenFiles, PooledFile
from tidelog.testing.forgetful_fs import ForgetfulFilesystem


def pool_of(fs: ForgetfulFilesystem, limit: int, count: int) -> tuple[OpenFiles, list[PooledFile]]:
    pool = OpenFiles(fs, limit)
    files = [PooledFile(pool, f"/{at}") for at in range(count)]
    for at, each in enumerate(files):
        each.create().pwrite(b"%d" % at, 0)
    return pool, files


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
def test_any_file_can_be_had_and_never_too_many_are_open(limit: int, uses: list[int]) -> None:
    pool, files = pool_of(ForgetfulFilesystem(), limit, 10)
    for at in uses:
        assert files[at].get().pread(9, 0) == b"%d" % at
        assert len(pool) <= limit


def test_a_file_in_use_stays_while_others_come_and_go(memory: ForgetfulFilesystem) -> None:
    _, files = pool_of(memory, 2, 6)
    files[0].get()
    memory.opened.clear()
    for at in (1, 2, 3, 4, 5):
        files[0].get()
        files[at].get()
    assert memory.opened["/0"] == 0
    assert all(memory.opened[f"/{at}"] == 1 for at in (1, 2, 3))


def test_an_evicted_file_stays_readable_for_those_who_hold_it(memory: ForgetfulFilesystem) -> None:
    _, files = pool_of(memory, 1, 2)
    part = FileSlice(files[0].get(), 0, 1)
    files[1].get()
    assert part.read() == b"0"


def test_a_closed_file_is_opened_again_under_its_new_path(memory: ForgetfulFilesystem) -> None:
    pool, files = pool_of(memory, 3, 1)
    memory.rename("/0", "/moved")
    files[0].close()
    assert len(pool) == 0
    files[0].path = "/moved"
    assert files[0].get().pread(9, 0) == b"0"


def test_create_starts_empty(memory: ForgetfulFilesystem) -> None:
    _, files = pool_of(memory, 3, 1)
    assert files[0].create().size() == 0


def test_opening_what_is_gone_is_an_error(memory: ForgetfulFilesystem) -> None:
    pool, files = pool_of(memory, 1, 2)
    memory.remove("/0")
    with pytest.raises(FileNotFoundError):
        files[0].get()
    assert len(pool) == 1


# -- index memory -------------------------------------------------------------------------------------------------


def index_of(fs: ForgetfulFilesystem, memory: IndexMemory, at: int, entries: int) -> OffsetIndex:
    index = OffsetIndex(fs, f"/{at}", 0, memory, 0)
    assert index.load(2**30)
    for entry in range(entries):
        index.append(entry, entry * 100)
    return index


def test_the_least_used_index_goes_back_to_its_file(memory: ForgetfulFilesystem) -> None:
    bound = IndexMemory(25)
    indexes = [index_of(memory, bound, at, 10) for at in range(4)]
    assert bound.entries <= 25
    assert [each.loaded for each in indexes] == [False, False, True, True]
    assert [len(each) for each in indexes] == [10] * 4, "their length is known all the same"
    assert indexes[0].load(10**6)
    assert indexes[0].before_offset(4) == (4, 400), "nothing is lost"


def test_one_index_may_exceed_the_bound_alone(memory: ForgetfulFilesystem) -> None:
    bound = IndexMemory(5)
    index = index_of(memory, bound, 0, 50)
    assert index.loaded
    assert bound.entries == 50
    index.unload()
    assert bound.entries == 0


def test_memory_is_given_back_by_every_way_out(memory: ForgetfulFilesystem) -> None:
    bound = IndexMemory(1000)
    cleared, cut, unloaded = (index_of(memory, bound, at, 10) for at in range(3))
    cleared.clear()
    assert bound.entries == 20
    cut.truncate(500)
    assert bound.entries == 15
    unloaded.unload()
    assert bound.entries == 5
