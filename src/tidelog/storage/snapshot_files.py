"""The `.snapshot` files of one partition: one per segment start, and one where the log ended when it was closed."""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import snapshots
from tidelog.storage.fs import File, Filesystem, read_file, remove_if_there, write_fully
from tidelog.storage.snapshots import SUFFIX, SnapshotDamaged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tidelog.storage.producers import Producers

_log = logging.getLogger(__name__)

_BYTES_MAX = 256 << 20


class Loaded(NamedTuple):
    """The producers before `offset`; what follows has to be replayed."""

    producers: Producers
    offset: int


class SnapshotFiles:
    __slots__ = ("_directory", "_fs", "_offsets")

    def __init__(self, fs: Filesystem, directory: str, offsets: Iterable[int]) -> None:
        self._fs = fs
        self._directory = directory
        self._offsets = sorted(offsets)

    @property
    def latest(self) -> int:
        """Of which offset there is the newest; -1 if there is none."""
        return self._offsets[-1] if self._offsets else -1

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}{SUFFIX}"

    def write(self, offset: int, producers: Producers) -> File:
        """Not durable until the returned file and the directory are synced; a torn one is noticed by its checksum."""
        file = self._fs.open(self.path(offset), create=True)
        data = snapshots.encode(producers)
        if file.size():
            file.truncate(0)
        write_fully(file, data, 0)
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return file

    def load(self, at_or_before: int) -> Loaded | None:
        """The newest sound one that is not beyond `at_or_before`."""
        for offset in reversed(self._offsets[: bisect_right(self._offsets, at_or_before)]):
            try:
                return Loaded(snapshots.decode(read_file(self._fs, self.path(offset), _BYTES_MAX)), offset)
            except SnapshotDamaged as damage:
                _log.warning("removing damaged producer snapshot %s: %s", self.path(offset), damage)
                self.remove(offset)
            except FileNotFoundError:
                self._offsets.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        remove_if_there(self._fs, self.path(offset))
        if offset in self._offsets:
            self._offsets.remove(offset)

    def forget(self, offset: int) -> None:
        """Its file went away with its segment."""
        if offset in self._offsets:
            self._offsets.remove(offset)

    def remove_after(self, end_offset: int) -> None:
        for offset in [each for each in self._offsets if each > end_offset]:
            self.remove(offset)

    def prune(self, keep: Collection[int]) -> None:
        """Remove all but the newest and those that belong to a segment's start."""
        for offset in self._offsets[:-1]:
            if offset not in keep:
                self.remove(offset)
