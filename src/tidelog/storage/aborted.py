"""The aborted transactions of one partition, by segment: what read_committed readers are told to leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.aborted_index import AbortedEntry, AbortedIndex
from tidelog.storage.content import stem_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.storage.fs import File, Filesystem
    from tidelog.storage.segment import SegmentFiles
    from tidelog.storage.transactions import CompletedTransaction, Transactions


class AbortedTransaction(NamedTuple):
    """As a fetch reply names it: everything of the producer from `first_offset` to its next abort marker is void."""

    producer_id: int
    first_offset: int


class Aborted:
    """Only segments in which a transaction was aborted have an index: most partitions have none at all."""

    __slots__ = ("_directory", "_fs", "_indexes")

    def __init__(self, fs: Filesystem, directory: str, found: Iterable[SegmentFiles] = ()) -> None:
        self._fs = fs
        self._directory = directory
        self._indexes: dict[int, AbortedIndex] = {}
        """By the segments' base offsets, which rise."""
        for each in found:
            self.adopt(each)

    def __len__(self) -> int:
        """How many segments have an index."""
        return len(self._indexes)

    def adopt(self, found: SegmentFiles) -> None:
        """Take over what a directory holds for a segment."""
        self._indexes.pop(found.base_offset, None)
        if found.aborted_bytes > 0:
            index = self._index(found.base_offset, found.aborted_bytes)
            if found.log_bytes <= 0:
                index.clear()  # it stems from what was cut away before

    def ended(self, segment_base: int, completed: CompletedTransaction, transactions: Transactions) -> None:
        """Note how a transaction ended whose marker lies in the segment at `segment_base`."""
        if completed.aborted:
            stable = transactions.first_open_offset(otherwise=completed.last_offset + 1)
            index = self._indexes.get(segment_base) or self._index(segment_base)
            index.append(AbortedEntry(completed.producer_id, completed.first_offset, completed.last_offset, stable))

    def overlapping(self, segment_base: int, from_offset: int, upto: int) -> list[AbortedEntry]:
        """Those of which a reader of `from_offset` to `upto` may have got records; by their markers.

        `segment_base` is that of the segment that holds `from_offset`.
        """
        found: list[AbortedEntry] = []
        for base_offset, index in self._indexes.items():
            if base_offset < segment_base:
                continue
            entries, complete = index.overlapping(from_offset, upto)
            found += entries
            if complete:
                break
        return found

    def bytes_of(self, segment_base: int) -> int:
        """What the segment's index file holds."""
        index = self._indexes.get(segment_base)
        return 0 if index is None else index.file_bytes

    def check(self, segment_base: int) -> None:
        """Raises AbortedIndexDamaged if the segment's index has to be rebuilt."""
        if (index := self._indexes.get(segment_base)) is not None:
            index.check()

    def begin_rebuild(self, segment_base: int) -> None:
        """Every marker of the segment is to be noted again."""
        if (index := self._indexes.get(segment_base)) is not None:
            index.clear()

    def truncate(self, segment_base: int, end_offset: int) -> None:
        if (index := self._indexes.get(segment_base)) is not None:
            index.truncate(end_offset)

    def forget(self, segment_base: int) -> None:
        """The segment is gone, its files with it."""
        self._indexes.pop(segment_base, None)

    def save(self, segment_base: int) -> tuple[File, ...]:
        """Bring the segment's index file up to date; what was written is to be synced."""
        index = self._indexes.get(segment_base)
        return () if index is None else index.save()

    def _index(self, base_offset: int, file_bytes: int = 0) -> AbortedIndex:
        index = AbortedIndex(self._fs, stem_of(self._directory, base_offset), base_offset, file_bytes)
        behind = bool(self._indexes) and base_offset < next(reversed(self._indexes))
        self._indexes[base_offset] = index
        if behind:
            self._indexes = dict(sorted(self._indexes.items()))
        return index
