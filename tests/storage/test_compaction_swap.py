"""Power cuts at every step of a cleaning: each group of segments is there as it was, or as it should become."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from compaction_cases import AMPLE, COMPACTED, UNTHROTTLED, Found, clean, close_segment, put, read_all, swap_in
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk

from tidelog.errors import BrokerError
from tidelog.storage.compaction import ticket as tickets
from tidelog.storage.compaction.cleaning import Cleaning
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log
    from tidelog.storage.store import LogStore

CONFIG = replace(COMPACTED, segment_bytes=700)
CHANGES = {"create", "write", "truncate", "sync", "rename", "remove", "sync_dir"}


class PowerCut(BaseException):
    """Nobody catches it, as nobody would."""


class DoomedFilesystem(ForgetfulFilesystem):
    """Goes down at a chosen change."""

    cut_after: int | None = None
    changes = 0

    def operation(self, name: str, path: str) -> None:
        super().operation(name, path)
        if name in CHANGES:
            if self.changes == self.cut_after:
                raise PowerCut
            self.changes += 1

    def cut(self, after: int | None) -> None:
        self.changes, self.cut_after = 0, after


def filled(seed: int = 0) -> tuple[DoomedFilesystem, Disk, LogStore]:
    """A log of a few segments of two sizes, with keys that come again, tombstones, and a producer."""
    fs = DoomedFilesystem(seed, page_bytes=128)
    disk = Disk(fs, "/data")
    store = disk.open_store(CONFIG)
    log = store.create(TP, TOPIC_ID, CONFIG)
    for at in range(30):
        value = None if at % 6 == 5 else b"%d" % at * 5
        put(log, (b"k%d" % (at % 7), value), (b"once-%d" % at if at % 3 else b"often", b"v"))
        if at in {3, 4, 20}:
            log.roll(NOW_MS)
    put(log, (b"k1", b"idempotent"), producer_id=7, sequence=0)
    put(log, (b"k1", b"last"), (b"often", b"last"))
    close_segment(log)
    store.write_checkpoints()
    return fs, disk, store


def states_of_a_cleaning() -> list[list[Found]]:
    """What the log holds before the first group is replaced, after it, and so on."""
    _, _, store = filled()
    log = store.logs[TP]
    states = [read_all(log)]
    ticket = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    for group in cleaning.map_dirty().groups:
        swap_in(log, ticket, cleaning, group)
        states.append(read_all(log))
    return states


STATES = states_of_a_cleaning()


def check(disk: Disk, log: Log) -> None:
    assert read_all(log) in STATES
    assert not disk.files(".cleaned")
    assert not disk.files(".swap")
    assert not disk.files(".deleted")
    assert log.log_end_offset == 63
    segments = list(log.segments.with_ends(log.log_end_offset))
    for segment, end_offset in segments:
        walked = [header.next_offset for _, header in segment.headers()]
        assert not walked or walked[-1] == end_offset, "a segment ends where the next begins"


def test_there_are_several_groups() -> None:
    assert len(STATES) >= 4
    assert all(len(after) <= len(before) for before, after in pairwise(STATES))
    assert len(STATES[-1]) < len(STATES[0])


@pytest.mark.parametrize("forget", Forget)
def test_a_power_cut_at_any_step_leaves_old_or_new(forget: Forget) -> None:
    seen: set[int] = set()
    step = 0
    while True:
        fs, disk, store = filled(step)
        fs.cut(after=step)
        try:
            clean(store.logs[TP])
        except PowerCut:
            fs.cut(None)
            fs.crash(forget)
        else:
            break
        log = disk.open_store(CONFIG).logs[TP]
        check(disk, log)
        seen.add(STATES.index(read_all(log)))
        clean(log)
        assert read_all(log) == STATES[-1]
        step += 1
    assert step > 50
    assert len(seen) >= len(STATES) - 1, "the last step is the sync that would make the last state stay"


@given(
    seed=st.integers(0, 2**32),
    first=st.integers(0, 200),
    second=st.integers(0, 60),
    forgets=st.tuples(st.sampled_from(Forget), st.sampled_from(Forget)),
)
@settings(deadline=None)
def test_a_second_cut_while_recovering_from_the_first_changes_nothing(
    seed: int, first: int, second: int, forgets: tuple[Forget, Forget]
) -> None:
    fs, disk, store = filled(seed)
    fs.cut(after=first)
    with suppress(PowerCut):
        clean(store.logs[TP])
    fs.crash(forgets[0])
    fs.cut(after=second)
    with suppress(PowerCut):
        disk.open_store(CONFIG)
    fs.cut(None)
    fs.crash(forgets[1])
    log = disk.open_store(CONFIG).logs[TP]
    check(disk, log)
    clean(log)
    assert read_all(log) == STATES[-1]


@given(seed=st.integers(0, 2**32), after=st.integers(0, 40), error=st.sampled_from([errno.EIO, errno.ENOSPC]))
@settings(deadline=None)
def test_a_rename_that_fails_takes_the_log_out_of_service_and_recovery_completes_it(
    seed: int, after: int, error: int
) -> None:
    fs, disk, store = filled(seed)
    fs.fail("rename", error, after)
    try:
        clean(store.logs[TP])
    except BrokerError:
        assert store.logs[TP].failure
    fs.crash(Forget.NOTHING)
    log = disk.open_store(CONFIG).logs[TP]
    check(disk, log)


def test_a_swap_without_its_indexes_is_completed_and_they_are_built_again() -> None:
    """As after a cut between the renames of a set, on a file system that orders them otherwise."""
    _, disk, store = filled()
    log = store.logs[TP]
    ticket = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    group = cleaning.map_dirty().groups[0]
    assert cleaning.clean(group) is not None
    stem = f"{disk.partition}/{group[0]:020d}"
    disk.fs.rename(f"{stem}.log.cleaned", f"{stem}.log.swap")
    disk.fs.sync_dir(disk.partition)
    assert isinstance(disk.fs, DoomedFilesystem)
    disk.fs.crash(Forget.EVERYTHING)
    again = disk.open_store(CONFIG).logs[TP]
    check(disk, again)
    assert read_all(again) == STATES[1]
    first = again.segments.holding(group[0])
    assert first.find(first.base_offset + 5) is not None


def test_a_swap_that_the_disk_damaged_does_not_replace_what_is_well() -> None:
    _, disk, store = filled()
    log = store.logs[TP]
    ticket = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    group = cleaning.map_dirty().groups[0]
    assert cleaning.clean(group) is not None
    name = f"{group[0]:020d}.log"
    for suffix in (".index", ".timeindex", ".log"):
        stem = f"{disk.partition}/{group[0]:020d}{suffix}"
        disk.fs.rename(f"{stem}.cleaned", f"{stem}.swap")
    disk.overwrite(f"{name}.swap", disk.content(f"{name}.swap")[:-5])
    assert isinstance(disk.fs, DoomedFilesystem)
    disk.fs.crash(Forget.EVERYTHING)
    again = disk.open_store(CONFIG).logs[TP]
    check(disk, again)
    assert read_all(again) == STATES[0]


def test_indexes_without_their_log_are_not_a_swap() -> None:
    _, disk, store = filled()
    log = store.logs[TP]
    ticket = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    group = cleaning.map_dirty().groups[0]
    assert cleaning.clean(group) is not None
    stem = f"{disk.partition}/{group[0]:020d}"
    for suffix in (".index", ".timeindex"):
        disk.fs.rename(f"{stem}{suffix}.cleaned", f"{stem}{suffix}.swap")
    disk.fs.sync_dir(disk.partition)
    assert isinstance(disk.fs, DoomedFilesystem)
    disk.fs.crash(Forget.EVERYTHING)
    again = disk.open_store(CONFIG).logs[TP]
    check(disk, again)
    assert read_all(again) == STATES[0]


def test_on_real_disks_too_a_swap_is_completed_at_the_next_start(disk: Disk) -> None:
    store = disk.open_store(CONFIG)
    log = store.create(TP, TOPIC_ID, CONFIG)
    for at in range(20):
        put(log, (b"k%d" % (at % 3), b"%d" % at * 20))
    close_segment(log)
    ticket = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE)
    cleaning = Cleaning(log.room.fs, ticket.job, UNTHROTTLED)
    group = cleaning.map_dirty().groups[0]
    cleaned = cleaning.clean(group)
    assert cleaned is not None
    stem = f"{disk.partition}/{group[0]:020d}"
    for suffix in (".index", ".timeindex", ".log"):
        disk.fs.rename(f"{stem}{suffix}.cleaned", f"{stem}{suffix}.swap")
    store.close()
    again = disk.open_store(CONFIG).logs[TP]
    first = again.segments.holding(0)
    assert first.size == cleaned.log_bytes
    assert not disk.files(".swap")
    clean(again)
    assert [each.offset for each in read_all(again)] == [17, 18, 19]
