"""A segment's `.index`: every few KB of log, one entry (last offset of a batch, position where that batch starts).

Kafka's format: 8 bytes per entry, the offset relative to the segment's base, both big-endian int32. Entries live in
two arrays, so that a lookup is one bisect in C. They are loaded when first needed and written when the segment is
rolled, closed or pushed out of memory, never on the way of an append: a crash loses nothing that a walk through the
log does not bring back.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.fs import File, Filesystem, read_fully, write_fully

if TYPE_CHECKING:
    from tidelog.storage.index_memory import IndexMemory

MISSING = -1
"""In place of a count or a length: the file is not there, or cannot be what was once written."""

ENTRY_SIZE = 8
SUFFIX = ".index"
_MAX_RELATIVE = 2**31 - 1
_INT32 = "I"
_SWAP = sys.byteorder == "little"

assert array(_INT32).itemsize == 4


class IndexEntry(NamedTuple):
    last_offset: int
    position: int


class OffsetIndex:
    __slots__ = ("_base_offset", "_fs", "_memory", "_offsets", "_positions", "_saved", "_stem", "used")

    def __init__(self, fs: Filesystem, stem: str, base_offset: int, memory: IndexMemory, saved: int) -> None:
        """`saved` is how many entries the file holds, or MISSING."""
        self._fs = fs
        self._stem = stem
        self._base_offset = base_offset
        self._memory = memory
        self._saved = saved
        self._offsets: array[int] | None = None
        self._positions: array[int] | None = None
        self.used = False

    @property
    def path(self) -> str:
        return self._stem + SUFFIX

    @property
    def loaded(self) -> bool:
        return self._offsets is not None

    @property
    def saved_entries(self) -> int:
        """What the file holds; -1 if it is missing or damaged."""
        return self._saved

    def __len__(self) -> int:
        return max(0, self._saved) if self._offsets is None else len(self._offsets)

    def load(self, log_size: int) -> bool:
        """Bring the entries into memory. False, and empty, if the file is missing or cannot belong to the log."""
        if self._saved == MISSING:
            self.clear()
            return False
        try:
            data = read_fully(self._fs.open(self.path), 0, self._saved * ENTRY_SIZE) if self._saved else b""
        except FileNotFoundError:
            data = b""
        if len(data) != self._saved * ENTRY_SIZE:
            self.clear()
            return False
        offsets, positions = _split(data)
        if offsets and not (_rising(offsets) and _rising(positions) and positions[-1] < log_size):
            self.clear()
            return False
        self._offsets, self._positions = offsets, positions
        self._memory.grew(self, len(offsets))
        return True

    def clear(self) -> None:
        """Start over in memory; the file is overwritten by the next save."""
        self._forget()
        self._offsets, self._positions = array(_INT32), array(_INT32)
        self._saved = 0

    def append(self, last_offset: int, position: int) -> None:
        assert self._offsets is not None, "an index is loaded before it grows"
        assert self._positions is not None
        self._offsets.append(last_offset - self._base_offset)
        self._positions.append(position)
        self.used = True
        self._memory.grew(self, 1)

    def before_offset(self, offset: int) -> IndexEntry | None:
        """The last entry whose batch ends at or before `offset`: from its position on, `offset` is found."""
        assert self._offsets is not None
        assert self._positions is not None
        self.used = True
        at = bisect_right(self._offsets, min(max(0, offset - self._base_offset), _MAX_RELATIVE)) - 1
        return None if at < 0 else IndexEntry(self._offsets[at] + self._base_offset, self._positions[at])

    def before_position(self, position: int) -> IndexEntry | None:
        """The last entry whose batch starts at or before `position`: a boundary that needs no search in the log."""
        assert self._offsets is not None
        assert self._positions is not None
        self.used = True
        at = bisect_right(self._positions, min(position, _MAX_RELATIVE)) - 1
        return None if at < 0 else IndexEntry(self._offsets[at] + self._base_offset, self._positions[at])

    def truncate(self, log_size: int) -> None:
        """Drop what points at or behind `log_size`."""
        assert self._offsets is not None
        assert self._positions is not None
        keep = bisect_right(self._positions, log_size - 1) if log_size > 0 else 0
        self._memory.shrank(self, len(self._offsets) - keep)
        del self._offsets[keep:]
        del self._positions[keep:]
        if self._saved > keep:
            self._saved = keep
            self._fs.open(self.path, create=True).truncate(keep * ENTRY_SIZE)

    def save(self) -> File:
        """Write what the file does not have yet. The caller syncs the file when it needs it durable."""
        file = self._fs.open(self.path, create=True)
        assert self._saved != MISSING or self._offsets is None, "a missing index is rebuilt when it is loaded"
        if self._offsets is not None and self._positions is not None:
            fresh = _join(self._offsets[self._saved :], self._positions[self._saved :])
            if file.size() != self._saved * ENTRY_SIZE:
                file.truncate(self._saved * ENTRY_SIZE)
            write_fully(file, fresh, self._saved * ENTRY_SIZE)
            self._saved = len(self._offsets)
        return file

    def unload(self) -> None:
        """Give the memory back."""
        if self._offsets is not None and len(self._offsets) > self._saved:
            self.save()
        self._forget()
        self._offsets = self._positions = None

    def _forget(self) -> None:
        if self._offsets is not None:
            self._memory.shrank(self, len(self._offsets))
        self._memory.forget(self)


def _split(data: bytes) -> tuple[array[int], array[int]]:
    pairs: array[int] = array(_INT32)
    pairs.frombytes(data)
    if _SWAP:
        pairs.byteswap()
    return pairs[0::2], pairs[1::2]


def _join(offsets: array[int], positions: array[int]) -> bytes:
    pairs = array(_INT32, bytes(ENTRY_SIZE * len(offsets)))
    pairs[0::2], pairs[1::2] = offsets, positions
    if _SWAP:
        pairs.byteswap()
    return pairs.tobytes()


def _rising(values: array[int]) -> bool:
    """Cheap on purpose: zeros and torn pages show at the ends, and every entry is checked against the log in use."""
    return values[-1] <= _MAX_RELATIVE and (len(values) == 1 or values[0] < values[-1])
