"""The leader epoch cache: where in the log each leader's first record lies (KIP-101).

Plain data. The log appends on the first write of an epoch and cuts it when it cuts itself; followers find by it where
their log stops agreeing with the leader's.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tidelog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN_OFFSET = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch at or below the one asked for, and the offset behind its last record; -1/-1 if unknown."""

    epoch: int
    end_offset: int


class Epochs:
    __slots__ = ("_starts", "changed", "latest")

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts: list[EpochStart] = []
        self.latest: int = NO_LEADER_EPOCH
        for each in starts:
            self.assign(each.epoch, each.start_offset)
        self.changed = False
        """Whether the checkpoint file is behind. Whoever writes it says so."""

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`. Epochs never go back; a later start of a known epoch changes nothing."""
        if epoch <= self.latest:
            return
        while self._starts and self._starts[-1].start_offset >= start_offset:
            self._starts.pop()  # that epoch never wrote a record
        self._starts.append(EpochStart(epoch, start_offset))
        self.latest = epoch
        self.changed = True

    def truncate_end(self, end_offset: int) -> None:
        """The log was cut at `end_offset`."""
        while self._starts and self._starts[-1].start_offset >= end_offset:
            self._starts.pop()
            self.changed = True
        self.latest = self._starts[-1].epoch if self._starts else NO_LEADER_EPOCH

    def truncate_start(self, start_offset: int) -> None:
        """The log starts later now: the epoch in force there starts there."""
        before = bisect_right(self._starts, start_offset, key=lambda each: each.start_offset) - 1
        if before < 0 or (before == 0 and self._starts[0].start_offset == start_offset):
            return
        self._starts[: before + 1] = [EpochStart(self._starts[before].epoch, start_offset)]
        self.changed = True

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where `epoch` ended, or the one before it if this log never saw it."""
        if epoch < 0 or epoch > self.latest:
            return EpochEnd(NO_LEADER_EPOCH, UNKNOWN_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._starts, epoch, key=lambda each: each.epoch)
        if after == 0:
            # Older than everything here: whatever the asker has of it ends where our log begins.
            return EpochEnd(epoch, self._starts[0].start_offset)
        return EpochEnd(self._starts[after - 1].epoch, self._starts[after].start_offset)

    def at(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if unknown."""
        after = bisect_right(self._starts, offset, key=lambda each: each.start_offset)
        return self._starts[after - 1].epoch if after else NO_LEADER_EPOCH
