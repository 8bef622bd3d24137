"""One file system is as good as the other: the same rules hold on a real disk and on the double."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

from tidelog.storage.fs import (
    FileSlice,
    RealFilesystem,
    make_dirs,
    parent_of,
    read_file,
    read_fully,
    remove_if_there,
    remove_tree,
    replace_file,
    write_fully,
)
from tidelog.testing.forgetful_fs import ForgetfulFilesystem

if TYPE_CHECKING:
    from storage_cases import Disk


@pytest.fixture
def root(disk: Disk) -> str:
    make_dirs(disk.fs, disk.root)
    return disk.root


def test_what_is_written_is_read_back_at_any_position(disk: Disk, root: str) -> None:
    file = disk.fs.open(f"{root}/a", create=True)
    assert file.pwrite(b"hello", 3) == 5
    assert file.size() == 8
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert file.pread(2, 4) == b"el"
    assert file.pread(10, 8) == b""
    file.truncate(5)
    assert file.pread(100, 0) == b"\0\0\0he"


def test_opening_what_is_not_there_fails_unless_it_is_created(disk: Disk, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.fs.open(f"{root}/a")
    disk.fs.open(f"{root}/a", create=True).pwrite(b"x", 0)
    assert disk.fs.open(f"{root}/a", create=True).size() == 1, "create does not empty an existing file"
    with pytest.raises(FileNotFoundError):
        disk.fs.open(f"{root}/no/a", create=True)


def test_scan_tells_names_sizes_and_kinds(disk: Disk, root: str) -> None:
    disk.fs.open(f"{root}/file", create=True).pwrite(b"abc", 0)
    disk.fs.make_dir(f"{root}/dir")
    found = {each.name: (each.is_dir, each.size) for each in disk.fs.scan(root)}
    assert found == {"file": (False, 3), "dir": (True, 0)}
    with pytest.raises(FileNotFoundError):
        disk.fs.scan(f"{root}/other")


def test_rename_replaces_and_an_open_file_outlives_its_name(disk: Disk, root: str) -> None:
    old = disk.fs.open(f"{root}/target", create=True)
    old.pwrite(b"old", 0)
    disk.fs.open(f"{root}/source", create=True).pwrite(b"new", 0)
    disk.fs.rename(f"{root}/source", f"{root}/target")
    assert not disk.fs.exists(f"{root}/source")
    assert disk.fs.open(f"{root}/target").pread(9, 0) == b"new"
    assert old.pread(9, 0) == b"old"
    disk.fs.remove(f"{root}/target")
    assert old.pread(9, 0) == b"old"
    with pytest.raises(FileNotFoundError):
        disk.fs.rename(f"{root}/source", f"{root}/target")
    with pytest.raises(FileNotFoundError):
        disk.fs.remove(f"{root}/target")


def test_directories_are_made_once_and_removed_when_empty(disk: Disk, root: str) -> None:
    make_dirs(disk.fs, f"{root}/a/b/c")
    make_dirs(disk.fs, f"{root}/a/b/c")
    with pytest.raises(FileExistsError):
        disk.fs.make_dir(f"{root}/a")
    with pytest.raises(OSError, match="not empty"):
        disk.fs.remove_dir(f"{root}/a")
    disk.fs.open(f"{root}/a/b/file", create=True)
    remove_tree(disk.fs, f"{root}/a")
    assert disk.fs.scan(root) == []


def test_a_lock_is_held_by_one(disk: Disk, root: str) -> None:
    lock = disk.fs.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.fs.lock(f"{root}/.lock")
    lock.release()
    disk.fs.lock(f"{root}/.lock").release()


def test_replace_file_leaves_no_trace_of_the_old_one(disk: Disk, root: str) -> None:
    replace_file(disk.fs, f"{root}/a", b"a long first version")
    replace_file(disk.fs, f"{root}/a", b"short")
    assert read_file(disk.fs, f"{root}/a", 100) == b"short"
    assert read_file(disk.fs, f"{root}/a", 2) == b"sh"
    assert [each.name for each in disk.fs.scan(root)] == ["a"]


def test_remove_if_there_does_not_mind(disk: Disk, root: str) -> None:
    remove_if_there(disk.fs, f"{root}/a")
    disk.fs.open(f"{root}/a", create=True)
    remove_if_there(disk.fs, f"{root}/a")
    assert not disk.fs.exists(f"{root}/a")


def test_space_is_known(disk: Disk, root: str) -> None:
    space = disk.fs.space(root)
    assert 0 < space.usable_bytes <= space.total_bytes


def test_a_slice_gives_its_range_and_nothing_else(disk: Disk, root: str) -> None:
    file = disk.fs.open(f"{root}/a", create=True)
    write_fully(file, b"0123456789", 0)
    part = FileSlice(file, 2, 5)
    assert (part.position, part.size) == (2, 5)
    assert part.read() == b"23456"
    assert part.read(3) == b"56"
    assert part.read(1, 2) == b"34"
    assert part.read(4, 100) == b"6"
    assert part.read(9) == b""
    assert (part.fileno() is None) == isinstance(disk.fs, ForgetfulFilesystem)


def test_read_fully_ends_where_the_file_ends(disk: Disk, root: str) -> None:
    file = disk.fs.open(f"{root}/a", create=True)
    write_fully(file, b"0123", 0)
    assert read_fully(file, 1, 100) == b"123"


@pytest.mark.parametrize(("path", "parent"), [("/a/b", "/a"), ("/a", "/"), ("a", "."), ("a/b", "a")])
def test_parent_of(path: str, parent: str) -> None:
    assert parent_of(path) == parent


def test_a_real_file_is_closed_with_its_last_reference(tmp_path: object) -> None:
    fs = RealFilesystem()
    file = fs.open(f"{tmp_path}/a", create=True)
    part = FileSlice(file, 0, 0)
    fd = file.fileno()
    assert fd is not None
    del file
    gc.collect()
    os.fstat(fd)  # still open for the slice
    del part
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_real_lock_is_told_apart_from_a_broken_path(tmp_path: object) -> None:
    with pytest.raises(FileNotFoundError):
        RealFilesystem().lock(f"{tmp_path}/no/such/.lock")
