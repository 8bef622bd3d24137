"""A partition's segments in order of offset, and reading across them.

There is always an active one, the last; a partition that was never written to has it without a file.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tidelog.storage.content import stem_of
from tidelog.storage.segment import LogSlice, Segment, SegmentFiles, remove_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.storage.fs import Filesystem
    from tidelog.storage.index_memory import IndexMemory
    from tidelog.storage.open_files import OpenFiles


class Segments:
    __slots__ = ("_bases", "_directory", "_files", "_fs", "_inactive_bytes", "_list", "_memory", "active")

    def __init__(
        self, fs: Filesystem, directory: str, files: OpenFiles, memory: IndexMemory, found: list[SegmentFiles]
    ) -> None:
        """`found` holds at least the active one, and rises."""
        self._fs = fs
        self._directory = directory
        self._files = files
        self._memory = memory
        self._list = [self._make(each) for each in found]
        self._bases = [each.base_offset for each in found]
        self.active = self._list[-1]
        self._inactive_bytes = sum(each.size for each in self._list[:-1])

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    @property
    def size_bytes(self) -> int:
        return self._inactive_bytes + self.active.size

    @property
    def first_offset(self) -> int:
        return self._bases[0]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return tuple(self._bases)

    def with_ends(self, log_end_offset: int) -> Iterator[tuple[Segment, int]]:
        """Each segment with the offset at which it ends."""
        yield from zip(self._list, [*self._bases[1:], log_end_offset], strict=True)

    def read(self, offset: int, log_end_offset: int, upto: int, max_bytes: int, *, min_one: bool) -> LogSlice | None:
        """From the segment that holds `offset`; from the next one if a gap lies between them."""
        active = self.active
        if offset >= active.base_offset:
            return active.read(offset, log_end_offset, upto, max_bytes, min_one=min_one)
        at = max(0, bisect_right(self._bases, offset) - 1)
        while offset < upto:
            segment = self._list[at]
            at += 1
            end_offset = self._bases[at] if at < len(self._bases) else log_end_offset
            found = segment.read(offset, end_offset, upto, max_bytes, min_one=min_one)
            if found is not None or at == len(self._list) or segment.find(offset) is not None:
                return found
            offset = end_offset
        return None

    def holding(self, offset: int) -> Segment:
        return self._list[max(0, bisect_right(self._bases, offset) - 1)]

    def add(self, base_offset: int, now_ms: int) -> Segment:
        """A new active segment with its file, in place of the active one if that is empty.

        On OSError nothing has changed.
        """
        assert base_offset > self._bases[-1], "segments rise"
        segment = self._make(SegmentFiles(base_offset))
        segment.create(now_ms)
        if not self.active.size:
            self.active.discard()
            remove_files(self._fs, self.active.stem)
            self._list.pop()
            self._bases.pop()
        self._list.append(segment)
        self._bases.append(base_offset)
        self._set_active()
        return segment

    def start_over(self, base_offset: int, now_ms: int) -> None:
        """Go on at `base_offset` with nothing before it, after all segments were dropped."""
        assert not self._list
        segment = self._make(SegmentFiles(base_offset))
        segment.create(now_ms)
        self._list.append(segment)
        self._bases.append(base_offset)
        self._set_active()

    def drop_oldest(self, count: int) -> list[Segment]:
        assert count < len(self._list), "the active segment stays"
        gone = self._list[:count]
        del self._list[:count]
        del self._bases[:count]
        self._set_active()
        return gone

    def drop_from(self, offset: int) -> list[Segment]:
        """Take out the segments that start at or after `offset`, newest first. If none is left, start over."""
        gone: list[Segment] = []
        while self._bases and self._bases[-1] >= offset:
            gone.append(self._list.pop())
            self._bases.pop()
        if self._list:
            self._set_active()
        return gone

    def replace(self, gone: Sequence[Segment], found: SegmentFiles) -> None:
        """Put one segment, whose files are there, in the place of some that follow each other."""
        at = self._list.index(gone[0])
        assert self._list[at : at + len(gone)] == list(gone), "these do not follow each other"
        assert self.active not in gone, "the active segment stays"
        self._list[at : at + len(gone)] = [self._make(found)]
        self._bases[at : at + len(gone)] = [found.base_offset]
        self._set_active()

    def discard(self) -> None:
        for each in self._list:
            each.discard()

    def _make(self, found: SegmentFiles) -> Segment:
        return Segment(self._fs, stem_of(self._directory, found.base_offset), found, self._files, self._memory)

    def _set_active(self) -> None:
        self.active = self._list[-1]
        self._inactive_bytes = sum(each.size for each in self._list[:-1])
