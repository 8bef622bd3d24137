"""The segment that a cleaning writes: `<base offset>.log.cleaned` with its indexes, durable when it is finished."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import aborted_index, offset_index, time_index
from tidelog.storage.compaction.names import CLEANED, SUFFIXES
from tidelog.storage.fs import Filesystem, remove_if_there, write_fully
from tidelog.storage.segment import LOG_SUFFIX, SEGMENT_BYTES_MAX
from tidelog.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.storage.aborted_index import AbortedEntry
    from tidelog.storage.compaction.throttle import Throttle
    from tidelog.storage.fs import Buffer, File

_INDEX_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


class Sizes(NamedTuple):
    """Of the four files."""

    log_bytes: int
    index_bytes: int
    time_index_bytes: int
    aborted_bytes: int


class SegmentTooLarge(Exception):  # noqa: N818 - named for what came out
    """Rewritten, the records take more than a segment can hold."""


class CleanedSegment:
    __slots__ = (
        "_aborted",
        "_base_offset",
        "_buffer",
        "_buffer_bytes",
        "_file",
        "_fs",
        "_index",
        "_interval_bytes",
        "_largest",
        "_last_time",
        "_size",
        "_stem",
        "_throttle",
        "_times",
        "_unindexed_bytes",
    )

    def __init__(
        self,
        fs: Filesystem,
        stem: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        buffer_bytes: int,
        throttle: Throttle,
    ) -> None:
        self._fs = fs
        self._stem = stem
        self._base_offset = base_offset
        self._interval_bytes = index_interval_bytes
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self._file = self._create(LOG_SUFFIX)
        self._buffer = bytearray()
        self._size = 0
        self._unindexed_bytes = 0
        self._index = bytearray()
        self._times = bytearray()
        self._aborted = bytearray()
        self._largest = (NO_TIMESTAMP, base_offset)
        """The largest timestamp so far, and the last offset of the first batch that has it."""
        self._last_time = NO_TIMESTAMP

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        size = len(batch)
        if self._size + size > SEGMENT_BYTES_MAX:
            raise SegmentTooLarge(f"{self._stem} would take more than {SEGMENT_BYTES_MAX} bytes")
        if max_timestamp > self._largest[0]:
            self._largest = (max_timestamp, last_offset)
        if self._unindexed_bytes > self._interval_bytes:
            self._index += _INDEX_ENTRY.pack(last_offset - self._base_offset, self._size)
            self._note_time()
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        self._buffer += batch
        self._size += size
        if len(self._buffer) >= self._buffer_bytes:
            self._write()

    def keep_aborted(self, entry: AbortedEntry) -> None:
        """The marker that ends an aborted transaction was appended."""
        self._aborted += aborted_index.pack([entry])

    def finish(self) -> Sizes:
        """Everything is on disk when this returns, except the names."""
        self._write()
        self._note_time()
        self._file.sync()
        for suffix, entries in (
            (offset_index.SUFFIX, self._index),
            (time_index.SUFFIX, self._times),
            (aborted_index.SUFFIX, self._aborted),
        ):
            file = self._create(suffix)
            write_fully(file, entries, 0)
            file.sync()
        return Sizes(self._size, len(self._index), len(self._times), len(self._aborted))

    def abandon(self) -> None:
        """It is not needed after all."""
        remove_cleaned(self._fs, self._stem)

    def _create(self, suffix: str) -> File:
        file = self._fs.open(f"{self._stem}{suffix}{CLEANED}", create=True)
        if file.size():
            file.truncate(0)
        return file

    def _write(self) -> None:
        if self._buffer:
            write_fully(self._file, self._buffer, self._size - len(self._buffer))
            self._throttle.used(len(self._buffer))
            self._buffer = bytearray()

    def _note_time(self) -> None:
        timestamp_ms, offset = self._largest
        if timestamp_ms > self._last_time:
            self._times += _TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset)
            self._last_time = timestamp_ms


def remove_cleaned(fs: Filesystem, stem: str) -> None:
    for suffix in SUFFIXES:
        remove_if_there(fs, f"{stem}{suffix}{CLEANED}")
