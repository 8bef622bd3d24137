"""One stretch of a partition's log: `<base offset>.log` with its two sparse indexes.

A segment knows bytes, positions and offsets of whole batches. It does not know what is flushed, who may read, or when
to roll: the log does. Indexes are believed only as far as the log confirms them; a wrong one is rebuilt on the spot.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.header import MAX_TIMESTAMP_AT
from tidelog.storage import aborted_index, offset_index, time_index
from tidelog.storage.fs import Buffer, File, FileSlice, Filesystem, remove_if_there, write_fully
from tidelog.storage.offset_index import MISSING, OffsetIndex
from tidelog.storage.open_files import OpenFiles, PooledFile
from tidelog.storage.time_index import TimeIndex
from tidelog.storage.walk import Damage, Place, headers, place_at, places
from tidelog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.records.header import BatchHeader
    from tidelog.storage.index_memory import IndexMemory
    from tidelog.storage.rolling import Easy

_log = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in the index are int32."""

_HINTS_MAX = 32
_REBUILD_INTERVAL_BYTES = 4096


class LogSlice(NamedTuple):
    """Whole batches, ready to be sent. `next_offset` is where reading goes on."""

    slice: FileSlice
    first_offset: int
    next_offset: int


class SegmentFiles(NamedTuple):
    """What a directory listing says about a segment, so that opening it reads nothing. MISSING is a missing file."""

    base_offset: int
    log_bytes: int = MISSING
    index_bytes: int = MISSING
    time_index_bytes: int = MISSING
    modified_ms: int = 0
    aborted_bytes: int = MISSING


class TornWrite(OSError):  # noqa: N818 - named for what is on disk now
    """A write failed half way, and the half could not be taken back."""


class Segment:
    __slots__ = (
        "_changed",
        "_fs",
        "_hints",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "easy",
        "exists",
        "file",
        "first_timestamp",
        "index",
        "modified_ms",
        "size",
        "stem",
        "times",
    )

    def __init__(self, fs: Filesystem, stem: str, found: SegmentFiles, files: OpenFiles, memory: IndexMemory) -> None:
        self._fs = fs
        self.stem = stem
        self.base_offset = found.base_offset
        self.size = max(0, found.log_bytes)
        self.exists = found.log_bytes != MISSING
        self.modified_ms = found.modified_ms
        self.created_ms = found.modified_ms
        self.file = PooledFile(files, stem + LOG_SUFFIX)
        # An empty log has empty indexes, whatever their files say: saving overwrites them.
        indexed = _entries(found.index_bytes, offset_index.ENTRY_SIZE) if self.size else 0
        timed = _entries(found.time_index_bytes, time_index.ENTRY_SIZE) if self.size else 0
        self.index = OffsetIndex(fs, stem, found.base_offset, memory, indexed)
        self.times = TimeIndex(fs, stem, found.base_offset, timed)
        self._changed = False
        self._unindexed_bytes = 0
        self._max_timestamp: int | None = None if self.size else NO_TIMESTAMP
        self._max_timestamp_offset = found.base_offset
        self.first_timestamp: int | None = None
        self._hints: dict[int, int] = {}
        self.easy: Easy | None = None
        """Kept here for the log, which rolls: forgotten when the segment is cut."""

    # -- writing ------------------------------------------------------------------------------------------------

    def create(self, now_ms: int) -> None:
        self.file.create()
        self.exists = True
        self.modified_ms = self.created_ms = now_ms

    def write(self, data: Buffer, size: int) -> int:
        """Put `data` behind what is there and return its position. On OSError the segment is as it was before."""
        position = self.size
        if self._max_timestamp is None:
            self._load_max_timestamp()
        if not self.index.loaded:
            self._load_index()
        file = self.file.get()
        try:
            if file.pwrite(data, position) != size:
                write_fully(file, data, position)
        except OSError as error:
            _take_back(file, position, error)
            raise
        self.size = position + size
        self._changed = True
        return position

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Enter a written batch into the indexes, if it is time for an entry."""
        if self._max_timestamp is None or max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._unindexed_bytes > index_interval_bytes:
            self.index.append(last_offset, position)
            self.times.append(self._max_timestamp, self._max_timestamp_offset)
            self._unindexed_bytes = 0
        self._unindexed_bytes += size

    def save_indexes(self) -> tuple[File, ...]:
        """Bring both index files up to date, largest timestamp included; returns what was written, to be synced."""
        if not self._changed:
            return ()
        self._load_index()
        self._note_time()
        self._changed = False
        return self.index.save(), self.times.save()

    def truncate(self, position: int, end_offset: int) -> None:
        """Cut the log at `position`, where the batch of `end_offset` starts or would start."""
        index = self._load_index()
        self._check_times()
        index.truncate(position)
        self.times.truncate(end_offset)
        self._changed = True
        self.easy = None
        self.file.get().truncate(position)
        self.size = position
        self._hints.clear()
        self._max_timestamp = None if position else NO_TIMESTAMP
        self._unindexed_bytes = 0
        self._recover_max_timestamp()

    def begin_rebuild(self) -> None:
        """Forget what the indexes say; every batch is to be noted again, from the first on."""
        self.index.clear()
        self.times.clear()
        self._changed = True
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._unindexed_bytes = 0

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `position` on."""
        return headers(self.file.get(), position, self.size, self.base_offset)

    # -- finding ------------------------------------------------------------------------------------------------

    def find(self, offset: int) -> Place | None:
        """The first batch that ends at or after `offset`; None if all end before it."""
        known = self._hints.get(offset)
        if known is not None and known < self.size:
            return place_at(self.file.get(), known, self.size)
        file = self.file.get()
        entry = self._load_index().before_offset(offset)
        start = 0 if entry is None else entry.position
        try:
            for place in places(file, start, self.size):
                if entry is not None and place.position == start and place.last_offset != entry.last_offset:
                    break
                if place.last_offset >= offset:
                    return place
            else:
                return None
        except Damage as damage:
            if entry is None or damage.position != start:
                raise
        assert entry is not None
        self._distrust_indexes(f"no batch that ends at {entry.last_offset} starts at byte {start}")
        return self.find(offset)

    def read(self, offset: int, end_offset: int, upto: int, max_bytes: int, *, min_one: bool) -> LogSlice | None:
        """Whole batches from the one that holds `offset`. `end_offset` is this segment's, `upto` the caller's bound.

        None if no batch at or after `offset` lies below `upto`, or if the first one alone exceeds `max_bytes`.
        """
        start = self._hints.get(offset)
        first_offset = offset
        if start is None:
            first = self.find(offset)
            if first is None:
                return None
            start, first_offset = first.position, first.base_offset
        limit, next_offset = self._limit(end_offset, upto)
        if limit <= start:
            return None
        file = self.file.get()
        if limit - start > max_bytes:
            limit, next_offset = self._boundary(file, start, start + max_bytes, min_one=min_one)
            if limit == start:
                return None
        self.remember(next_offset, limit)
        return LogSlice(FileSlice(file, start, limit - start), first_offset, next_offset)

    def remember(self, offset: int, position: int) -> None:
        """Where the batch that starts with `offset` lies: readers go on where they stopped."""
        hints = self._hints
        if offset not in hints and len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = position

    def largest_timestamp(self) -> int:
        """Of all records; -1 if none has one."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    def offset_of_largest_timestamp(self) -> int:
        """The last offset of the first batch that holds the largest timestamp."""
        self.largest_timestamp()
        return self._max_timestamp_offset

    def find_timestamp(self, timestamp_ms: int, from_offset: int) -> Place | None:
        """The first batch that ends at or after `from_offset` and holds a record as late as `timestamp_ms`."""
        if self.largest_timestamp() < timestamp_ms:
            return None
        self._check_times()
        entry = self.times.before(timestamp_ms)
        start = self.find(max(from_offset, self.base_offset if entry is None else entry.offset))
        if start is None:
            return None
        for position, header in self.headers(start.position):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= from_offset:
                return Place(position, header.size, header.base_offset, header.last_offset)
        return None

    def rolling_timestamp(self) -> int:
        """The first batch's largest timestamp, from which the segment's age counts; -1 if there is none."""
        if self.first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            first = place_at(self.file.get(), 0, self.size)
            self.first_timestamp = int.from_bytes(
                self.file.get().pread(8, first.position + MAX_TIMESTAMP_AT), "big", signed=True
            )
        return self.first_timestamp

    def batch_bytes(self, place: Place) -> bytes:
        return FileSlice(self.file.get(), place.position, place.size).read()

    # -- the end of it ------------------------------------------------------------------------------------------

    def discard(self) -> None:
        """Let go of the files, without writing anything."""
        self.index.clear()
        self.file.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _limit(self, end_offset: int, upto: int) -> tuple[int, int]:
        """Position and offset of the batch boundary at or before `upto`."""
        if upto >= end_offset:
            return self.size, end_offset
        position = self._hints.get(upto)
        if position is not None:
            return position, upto
        place = self.find(upto)
        return (self.size, end_offset) if place is None else (place.position, place.base_offset)

    def _boundary(self, file: File, start: int, limit: int, *, min_one: bool) -> tuple[int, int]:
        """The batch boundary at or before `limit`, and the offset there. Past the first batch if `min_one`.

        An indexed position is taken as it is, though up to one index interval more might fit: it costs one small
        read instead of a search.
        """
        entry = self._load_index().before_position(limit)
        if entry is not None and entry.position > start:
            try:
                place = place_at(file, entry.position, self.size)
            except Damage:
                return self._walk_to_boundary(file, start, limit, min_one=min_one)
            if place.last_offset == entry.last_offset:
                return entry.position, place.base_offset
            self._distrust_indexes(f"no batch that ends at {entry.last_offset} starts at byte {entry.position}")
            return self._boundary(file, start, limit, min_one=min_one)
        return self._walk_to_boundary(file, start, limit, min_one=min_one)

    def _walk_to_boundary(self, file: File, start: int, limit: int, *, min_one: bool) -> tuple[int, int]:
        """As `_boundary`, batch by batch. What lies before a damage can be read; at the damage itself it is raised."""
        end, next_offset = start, -1
        try:
            for place in places(file, start, self.size):
                if next_offset >= 0 and place.position + place.size > limit:
                    return place.position, place.base_offset
                end, next_offset = place.position + place.size, place.last_offset + 1
                if end > limit:
                    return (end, next_offset) if min_one else (start, -1)
        except Damage:
            if next_offset < 0:
                raise
        return end, next_offset

    def _load_index(self) -> OffsetIndex:
        index = self.index
        if not index.loaded and not index.load(self.size) and self.size:
            self._rebuild_indexes("the offset index is missing or damaged")
        return index

    def _check_times(self) -> None:
        if not self.times.sound():
            self._rebuild_indexes("the time index is missing or damaged")

    def _distrust_indexes(self, reason: str) -> None:
        """An entry does not fit the log. Raises Damage, and keeps the indexes, if it is the log that is wrong."""
        for _ in self.headers():
            pass  # a bad batch is no reason to throw away an index that leads past it
        self._rebuild_indexes(reason)

    def _rebuild_indexes(self, reason: str) -> None:
        """Walk the whole segment, or what can be walked of it."""
        _log.warning("rebuilding the indexes of %s: %s", self.file.path, reason)
        self.begin_rebuild()
        try:
            for position, header in self.headers():
                self.note(position, header.size, header.last_offset, header.max_timestamp, _REBUILD_INTERVAL_BYTES)
        except Damage as damage:
            _log.error("%s can be read only up to its damage %s", self.file.path, damage)
        self._note_time()

    def _note_time(self) -> None:
        self.times.append(self.largest_timestamp(), self._max_timestamp_offset)

    def _load_max_timestamp(self) -> None:
        """The time index of a closed segment ends with its largest timestamp."""
        self._check_times()
        last = self.times.last()
        if last is not None:
            self._max_timestamp, self._max_timestamp_offset = last
        elif self._max_timestamp is None:
            self._max_timestamp = NO_TIMESTAMP

    def _recover_max_timestamp(self) -> None:
        """After a cut, look at what lies behind the last time index entry that is left."""
        if not self.size:
            return
        last = self.times.last()
        self._max_timestamp = NO_TIMESTAMP
        start = 0
        if last is not None:
            self._max_timestamp, self._max_timestamp_offset = last
            place = self.find(last.offset)
            start = 0 if place is None else place.position
        for _, header in self.headers(start):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset


def remove_files(fs: Filesystem, stem: str) -> None:
    """The log first: indexes without one mean nothing."""
    for suffix in (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX, aborted_index.SUFFIX):
        remove_if_there(fs, stem + suffix)


def _take_back(file: File, size: int, cause: OSError) -> None:
    try:
        file.truncate(size)
    except OSError as error:
        raise TornWrite(error.errno, f"could not cut a failed write back: {error}") from cause


def _entries(file_bytes: int, entry_size: int) -> int:
    """How many entries a file holds; MISSING also if it ends within one."""
    return MISSING if file_bytes < 0 or file_bytes % entry_size else file_bytes // entry_size
