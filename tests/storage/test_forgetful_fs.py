"""The double forgets exactly what was not synced, and fails when told to."""

from __future__ import annotations

import errno

import pytest

from tidelog.storage.fs import write_fully
from tidelog.testing.forgetful_fs import PAGE_BYTES as PAGE
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem


def test_unsynced_content_is_gone_after_a_crash(memory: ForgetfulFilesystem) -> None:
    file = memory.open("/a", create=True)
    file.pwrite(b"synced", 0)
    file.sync()
    memory.sync_dir("/")
    file.pwrite(b"lost", 6)
    memory.crash()
    assert memory.open("/a").pread(100, 0) == b"synced"


def test_a_synced_file_without_a_synced_name_is_gone(memory: ForgetfulFilesystem) -> None:
    memory.make_dir("/d")
    memory.open("/d/a", create=True).sync()
    memory.sync_dir("/d")
    memory.crash()
    assert not memory.exists("/d"), "nobody synced the root"


def test_an_unsynced_rename_and_removal_are_undone(memory: ForgetfulFilesystem) -> None:
    for name in "abc":
        memory.open(f"/{name}", create=True)
    memory.sync_dir("/")
    memory.rename("/a", "/b")
    memory.remove("/c")
    assert {each.name for each in memory.scan("/")} == {"b"}
    memory.crash()
    assert {each.name for each in memory.scan("/")} == {"a", "b", "c"}


def test_a_killed_process_loses_nothing_but_its_open_files(memory: ForgetfulFilesystem) -> None:
    file = memory.open("/a", create=True)
    file.pwrite(b"kept", 0)
    memory.lock("/.lock")
    memory.crash(Forget.NOTHING)
    assert memory.open("/a").pread(9, 0) == b"kept"
    memory.lock("/.lock")
    with pytest.raises(AssertionError, match="has crashed"):
        file.pread(1, 0)


def test_a_partial_loss_tears_pages_and_is_the_same_for_the_same_seed() -> None:
    def outcome(seed: int) -> bytes:
        fs = ForgetfulFilesystem(seed)
        file = fs.open("/a", create=True)
        file.pwrite(b"o" * 4 * PAGE, 0)
        file.sync()
        fs.sync_dir("/")
        file.pwrite(b"n" * 6 * PAGE, PAGE)
        fs.crash(Forget.SOMETHING)
        reopened = fs.open("/a")
        return reopened.pread(reopened.size(), 0)

    outcomes = [outcome(seed) for seed in range(40)]
    assert outcomes == [outcome(seed) for seed in range(40)]
    assert len(set(outcomes)) > 10
    for content in outcomes:
        assert 4 * PAGE <= len(content) <= 7 * PAGE
        assert content[:PAGE] == b"o" * PAGE
        for start in range(PAGE, len(content), PAGE):
            assert len(set(content[start : start + PAGE])) == 1, "a page is old, new or zeros"


def test_names_come_back_in_the_order_in_which_they_changed() -> None:
    seen = set()
    for seed in range(40):
        fs = ForgetfulFilesystem(seed)
        for name in "abcd":
            fs.open(f"/{name}", create=True)
        fs.crash(Forget.SOMETHING)
        seen.add("".join(sorted(each.name for each in fs.scan("/"))))
    assert seen == {"", "a", "ab", "abc", "abcd"}


def test_failures_strike_once_at_the_call_they_were_set_for(memory: ForgetfulFilesystem) -> None:
    file = memory.open("/a", create=True)
    memory.fail("write", errno.ENOSPC, after=1)
    memory.fail("sync", errno.EIO)
    file.pwrite(b"1", 0)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"2", 1)
    file.pwrite(b"3", 1)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert file.pread(9, 0) == b"13"


def test_a_short_write_takes_a_part_and_write_fully_goes_on(memory: ForgetfulFilesystem) -> None:
    file = memory.open("/a", create=True)
    memory.shorten_write(3)
    assert file.pwrite(b"0123456789", 0) == 3
    memory.shorten_write(4)
    memory.shorten_write(2, after=1)
    write_fully(file, b"abcdefghij", 0)
    assert file.pread(99, 0) == b"abcdefghij"


def test_unsynced_truncation_is_undone(memory: ForgetfulFilesystem) -> None:
    file = memory.open("/a", create=True)
    file.pwrite(b"0123456789", 0)
    file.sync()
    memory.sync_dir("/")
    file.truncate(3)
    memory.crash()
    assert memory.open("/a").size() == 10


def test_opening_directories_and_paths_through_files_fails_as_it_should(memory: ForgetfulFilesystem) -> None:
    memory.make_dir("/d")
    memory.open("/f", create=True)
    with pytest.raises(IsADirectoryError):
        memory.open("/d")
    with pytest.raises(NotADirectoryError):
        memory.scan("/f")
    with pytest.raises(NotADirectoryError):
        memory.open("/f/x", create=True)
    assert memory.exists("/")
    assert not memory.exists("/x/y")
