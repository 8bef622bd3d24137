"""The leader epoch cache: who wrote what, and where each reign ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_cases import Disk, append, batch_of

from tidelog.storage.epochs import EpochEnd, Epochs, EpochStart

UNKNOWN = EpochEnd(-1, -1)


def epochs(*starts: tuple[int, int]) -> Epochs:
    return Epochs(EpochStart(*each) for each in starts)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, UNKNOWN),
        (0, EpochEnd(0, 5)),  # older than all: whatever the asker has of it ends where this log begins
        (1, EpochEnd(1, 10)),
        (2, EpochEnd(1, 10)),  # never seen here: the one before it
        (3, EpochEnd(3, 20)),
        (6, EpochEnd(6, 30)),  # the current one ends with the log
        (7, UNKNOWN),
    ],
)
def test_where_an_epoch_ended(asked: int, answer: EpochEnd) -> None:
    assert epochs((1, 5), (3, 10), (6, 20)).end_of(asked, 30) == answer


def test_without_epochs_nothing_is_known() -> None:
    assert epochs().end_of(0, 10) == UNKNOWN
    assert epochs().end_of(-1, 0) == UNKNOWN
    assert epochs().at(3) == -1


def test_only_the_first_write_of_an_epoch_counts() -> None:
    cache = epochs()
    cache.assign(2, 0)
    cache.assign(2, 5)
    cache.assign(1, 7)
    assert cache.starts == (EpochStart(2, 0),)
    assert cache.changed
    assert cache.latest == 2


def test_an_epoch_that_wrote_nothing_makes_way() -> None:
    cache = epochs((1, 0), (2, 10))
    cache.assign(3, 10)
    assert cache.starts == (EpochStart(1, 0), EpochStart(3, 10))


def test_a_cut_takes_the_epochs_behind_it() -> None:
    cache = epochs((1, 0), (2, 10), (3, 20))
    cache.truncate_end(10)
    assert cache.starts == (EpochStart(1, 0),)
    assert cache.latest == 1
    cache.truncate_end(0)
    assert cache.latest == -1


def test_a_log_that_starts_later_keeps_the_epoch_in_force_there() -> None:
    cache = epochs((1, 0), (2, 10), (3, 20))
    cache.truncate_start(15)
    assert cache.starts == (EpochStart(2, 15), EpochStart(3, 20))
    cache.changed = False
    cache.truncate_start(15)
    cache.truncate_start(3)
    assert not cache.changed


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=12), st.integers(-2, 40))
def test_every_offset_belongs_to_the_epoch_that_wrote_it(writes: list[tuple[int, int]], asked: int) -> None:
    cache, owners = epochs(), dict[int, int]()
    epoch = end = 0
    for rise, count in writes:
        epoch += rise
        cache.assign(epoch, end)
        owners.update(dict.fromkeys(range(end, end + count), epoch))
        end += count
    for offset, owner in owners.items():
        assert cache.at(offset) == owner
    answer = cache.end_of(asked, end)
    older = [offset for offset, owner in owners.items() if owner <= asked]
    if answer != UNKNOWN:
        assert answer.end_offset == (max(older) + 1 if older else 0)


def test_the_log_answers_for_its_current_and_former_leaders(disk: Disk) -> None:
    log = disk.open_log()
    assert log.end_offset_for_epoch(0) == UNKNOWN
    for epoch in (4, 4, 7):
        append(log, batch_of([b"a", b"b"]), leader_epoch=epoch)
    assert log.end_offset_for_epoch(4) == EpochEnd(4, 4)
    assert log.end_offset_for_epoch(5) == EpochEnd(4, 4)
    assert log.end_offset_for_epoch(7) == EpochEnd(7, 6)
    assert log.end_offset_for_epoch(8) == UNKNOWN
    log.truncate_to(4)
    assert log.end_offset_for_epoch(4) == EpochEnd(4, 4)
    assert log.end_offset_for_epoch(7) == UNKNOWN
