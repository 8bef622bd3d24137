"""A segment's `.txnindex`: the aborted transactions whose markers lie in it, in order of the markers.

Kafka's format: 34 bytes per entry, big-endian; version (0), producer id, first offset, the marker's offset, and the
first offset that was still open once the marker was there. No transaction that ends later can begin before that one,
so a search stops at the first entry whose last stable offset lies beyond what the reader got.

Most segments have no such file. Entries stay in memory until the segment is closed, or until they are many.
"""

from __future__ import annotations

import contextlib
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.fs import File, Filesystem, write_fully

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".txnindex"
VERSION = 0
_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_TAIL_BYTES_MAX = 1024 * ENTRY_SIZE
_ENTRIES_PER_READ = 240


class AbortedEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's."""
    last_stable_offset: int


class AbortedIndexDamaged(ValueError):  # noqa: N818 - named for what was found
    """The file cannot be what was once written."""


def pack(entries: list[AbortedEntry]) -> bytes:
    return b"".join(_ENTRY.pack(VERSION, *each) for each in entries)


def unpack(data: bytes | memoryview) -> Iterator[AbortedEntry]:
    """Raises AbortedIndexDamaged at the first entry that is none."""
    if len(data) % ENTRY_SIZE:
        raise AbortedIndexDamaged(f"{len(data)} bytes are not a number of whole entries")
    previous = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedEntry(*fields)
        if version != VERSION or not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= previous:
            raise AbortedIndexDamaged(f"no entry in order: version {version}, {entry}")
        previous = entry.last_offset
        yield entry


class AbortedIndex:
    __slots__ = ("_base_offset", "_changed", "_checked", "_fs", "_newest", "_saved", "_stem", "_tail", "_torn")

    def __init__(self, fs: Filesystem, stem: str, base_offset: int, file_bytes: int = 0) -> None:
        """`file_bytes` is what the file holds by the directory's listing."""
        self._fs = fs
        self._stem = stem
        self._base_offset = base_offset
        self._saved = file_bytes // ENTRY_SIZE
        self._checked = file_bytes == 0
        """Whether the file's entries have been looked at. What was written here needs no look."""
        self._torn = file_bytes % ENTRY_SIZE
        """Bytes of an entry within which it ends. It stays so until it is rebuilt, or nobody would know that one is
        missing."""
        self._newest = -1
        """The last marker's offset; not before the check."""
        self._tail = bytearray()
        self._changed = False

    @property
    def path(self) -> str:
        return self._stem + SUFFIX

    @property
    def file_bytes(self) -> int:
        return self._saved * ENTRY_SIZE + self._torn

    def __len__(self) -> int:
        return self._saved + len(self._tail) // ENTRY_SIZE

    def check(self) -> None:
        """Look at every entry of the file, once. Raises AbortedIndexDamaged if they cannot be what was written."""
        if self._checked:
            return
        try:
            file = self._fs.open(self.path)
        except FileNotFoundError:
            raise AbortedIndexDamaged("the file is gone") from None
        if self._torn or file.size() != self.file_bytes:
            raise AbortedIndexDamaged(f"{file.size()} bytes are not {self._saved} entries")
        newest = self._base_offset - 1
        for entry in self._entries(file, 0):
            if entry.last_offset <= newest:
                raise AbortedIndexDamaged(f"{entry} follows a marker at {newest}")
            newest = entry.last_offset
        self._newest = newest
        self._checked = True

    def append(self, entry: AbortedEntry) -> None:
        assert entry.last_offset > self._newest, "markers come in order"
        self._tail += _ENTRY.pack(VERSION, *entry)
        self._newest = entry.last_offset
        self._changed = True
        if len(self._tail) > _TAIL_BYTES_MAX and not self._torn:
            with contextlib.suppress(OSError):  # the marker is in the log: what cannot be written yet stays here
                self._write_tail()

    def overlapping(self, from_offset: int, upto: int) -> tuple[list[AbortedEntry], bool]:
        """The transactions that end at or after `from_offset` and begin before `upto`; and whether there can be no more
        in later segments."""
        self.check()
        if self._newest < from_offset:
            return [], False
        file = self._fs.open(self.path) if self._saved else None
        found: list[AbortedEntry] = []
        for entry in self._entries(file, self._first_ending_at(file, from_offset)):
            if entry.first_offset < upto:
                found.append(entry)
            if entry.last_stable_offset >= upto:
                return found, True
        return found, False

    def clear(self) -> None:
        """Forget all entries, those of the file too: they are appended again."""
        self._saved, self._tail = 0, bytearray()
        self._newest = -1
        self._checked = self._changed = True
        self._torn = 0

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of markers at or after `end_offset`."""
        self.check()
        if self._newest < end_offset:
            return
        file = self._fs.open(self.path) if self._saved else None
        keep = self._first_ending_at(file, end_offset)
        self._tail = self._tail[: max(0, keep - self._saved) * ENTRY_SIZE]
        if file is not None and keep < self._saved:
            file.truncate(keep * ENTRY_SIZE)
            self._saved = keep
        self._newest = self._entry(file, keep - 1).last_offset if keep else -1
        self._changed = True

    def save(self) -> tuple[File, ...]:
        """Bring the file up to date; returns it, to be synced, if it was not."""
        if not self._changed or self._torn:
            return ()
        file = self._write_tail()
        self._changed = False
        return (file,)

    def _write_tail(self) -> File:
        file = self._fs.open(self.path, create=True)
        if file.size() != self.file_bytes:
            file.truncate(self.file_bytes)
        write_fully(file, self._tail, self.file_bytes)
        self._saved += len(self._tail) // ENTRY_SIZE
        self._tail = bytearray()
        return file

    def _first_ending_at(self, file: File | None, offset: int) -> int:
        """Where the first entry is whose marker lies at or after `offset`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._entry(file, middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, file: File | None, at: int) -> AbortedEntry:
        return next(self._entries(file, at, 1))

    def _entries(self, file: File | None, at: int, per_read: int = _ENTRIES_PER_READ) -> Iterator[AbortedEntry]:
        """From the one at `at` on."""
        while at < self._saved:
            assert file is not None
            size = min(per_read, self._saved - at) * ENTRY_SIZE
            data = file.pread(size, at * ENTRY_SIZE)
            if len(data) < size:
                raise OSError(f"{self.path} is shorter than when it was opened")
            yield from unpack(data)
            at += size // ENTRY_SIZE
        if self._tail:
            yield from unpack(bytes(self._tail[(at - self._saved) * ENTRY_SIZE :]))
