"""A segment's `.timeindex`: entries (largest timestamp so far, offset of the batch that has it), both only rising.

Kafka's format: 12 bytes per entry, int64 timestamp and int32 relative offset, big-endian. Looking up by time is rare,
so nothing but the unsaved tail is kept in memory: a lookup probes the file some eighteen times.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.storage.fs import File, Filesystem, write_fully

SUFFIX = ".timeindex"
_ENTRY = Struct(">qi")
ENTRY_SIZE = _ENTRY.size
_TAIL_BYTES_MAX = 32 << 10


class TimeEntry(NamedTuple):
    timestamp_ms: int
    offset: int


class TimeIndex:
    __slots__ = ("_base_offset", "_fs", "_last", "_saved", "_stem", "_tail")

    def __init__(self, fs: Filesystem, stem: str, base_offset: int, saved: int) -> None:
        """`saved` is how many entries the file holds, or MISSING: then it is not `sound` until it is cleared."""
        self._fs = fs
        self._stem = stem
        self._base_offset = base_offset
        self._saved = saved
        self._tail = bytearray()
        self._last: TimeEntry | None = None

    @property
    def path(self) -> str:
        return self._stem + SUFFIX

    @property
    def saved_entries(self) -> int:
        """What the file holds; -1 if it is missing or damaged."""
        return self._saved

    def __len__(self) -> int:
        return max(0, self._saved) + len(self._tail) // ENTRY_SIZE

    def last(self) -> TimeEntry | None:
        """The newest entry, which names the segment's largest timestamp once the segment is closed."""
        if self._last is None and len(self):
            self._last = self._entry(self._open(), len(self) - 1)
        return self._last

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Ignored unless it raises the largest timestamp: only the first batch that reached it counts."""
        last = self.last()
        if timestamp_ms < 0 or (last is not None and timestamp_ms <= last.timestamp_ms):
            return
        self._tail += _ENTRY.pack(timestamp_ms, offset - self._base_offset)
        self._last = TimeEntry(timestamp_ms, offset)
        if len(self._tail) > _TAIL_BYTES_MAX:
            self.save()

    def before(self, timestamp_ms: int) -> TimeEntry | None:
        """The last entry at or before `timestamp_ms`: no record before its offset is as late as that."""
        file = self._open()
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(file, middle)
            if entry.timestamp_ms <= timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return self._entry(file, low - 1) if low else None

    def sound(self) -> bool:
        """Whether the file can be what was once written: whole entries, in order from first to last."""
        if self._saved <= 0:
            return self._saved == 0
        try:
            file = self._fs.open(self.path)
        except FileNotFoundError:
            return False
        if file.size() < self._saved * ENTRY_SIZE:
            return False
        first, last = self._entry(file, 0), self._entry(file, self._saved - 1)
        if first.offset < self._base_offset or first.timestamp_ms < 0:
            return False
        return self._saved == 1 or (first.offset < last.offset and first.timestamp_ms < last.timestamp_ms)

    def clear(self) -> None:
        self._saved, self._tail, self._last = 0, bytearray(), None

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of batches at or after `end_offset`."""
        file = self._open()
        keep = len(self)
        while keep and self._entry(file, keep - 1).offset >= end_offset:
            keep -= 1
        self._tail = self._tail[: max(0, keep - self._saved) * ENTRY_SIZE]
        if file is not None and keep < self._saved:
            file.truncate(keep * ENTRY_SIZE)
            self._saved = keep
        self._last = None

    def save(self) -> File:
        """Write what the file does not have yet. The caller syncs the file when it needs it durable."""
        assert self._saved >= 0, "a missing index is rebuilt before it is written"
        file = self._fs.open(self.path, create=True)
        if file.size() != self._saved * ENTRY_SIZE:
            file.truncate(self._saved * ENTRY_SIZE)
        write_fully(file, self._tail, self._saved * ENTRY_SIZE)
        self._saved += len(self._tail) // ENTRY_SIZE
        self._tail = bytearray()
        return file

    def _open(self) -> File | None:
        return self._fs.open(self.path) if self._saved > 0 else None

    def _entry(self, file: File | None, at: int) -> TimeEntry:
        if at >= self._saved:
            timestamp_ms, relative = _ENTRY.unpack_from(self._tail, (at - self._saved) * ENTRY_SIZE)
        else:
            assert file is not None
            data = file.pread(ENTRY_SIZE, at * ENTRY_SIZE)
            if len(data) < ENTRY_SIZE:
                raise OSError(f"{self.path} is shorter than when it was opened")
            timestamp_ms, relative = _ENTRY.unpack(data)
        return TimeEntry(timestamp_ms, self._base_offset + relative)
