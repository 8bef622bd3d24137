"""One cleaning of one log: look at the dirty part, then write the segments anew without what is superseded.

    cleaning = Cleaning(fs, job, throttle)
    mapped = cleaning.map_dirty()
    for group in mapped.groups: cleaned = cleaning.clean(group)

Reads closed segments, which nobody changes, and writes files that nobody looks at. Blocking, for minutes, and busy with
Python all the time: this belongs into a process of its own.

Oldest first, and each group is in use before the next one is cleaned. So a tombstone never goes before the records
that it deletes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tidelog.records.header import peek
from tidelog.records.record import inflate
from tidelog.storage.compaction import choosing
from tidelog.storage.compaction.batch_reader import StoredBatch, Stretch, batches
from tidelog.storage.compaction.cleaned_segment import CleanedSegment
from tidelog.storage.compaction.job import Cleaned, Mapped
from tidelog.storage.compaction.offset_map import OffsetMap
from tidelog.storage.compaction.rewriting import emptied, rewrite
from tidelog.storage.compaction.selecting import Selection, by_key, by_offset
from tidelog.storage.compaction.transactions import PassedTransactions
from tidelog.storage.content import stem_of
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.storage.walk import places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.records.header import BatchHeader
    from tidelog.storage.compaction.choosing import SegmentFacts
    from tidelog.storage.compaction.job import CleaningJob
    from tidelog.storage.compaction.throttle import Throttle
    from tidelog.storage.fs import File, Filesystem

_NOTHING = Selection([], 0, tombstones=False)


class Cleaning:
    def __init__(self, fs: Filesystem, job: CleaningJob, throttle: Throttle) -> None:
        self._fs = fs
        self._job = job
        self._throttle = throttle
        self._segments = {each.base_offset: each for each in job.segments}
        self._map = OffsetMap(job.limits.map_bytes, job.first_dirty)
        self._live: array[int] = array("q")
        self._passed = PassedTransactions(job.aborted)
        """By what is written anew, from the log's start on."""

    # -- looking ------------------------------------------------------------------------------------------------

    def map_dirty(self) -> Mapped:
        """Find the newest offset of every key, as far as memory goes: the rest is left to the next cleaning."""
        job = self._job
        records = 0
        passed = PassedTransactions(job.aborted)
        for batch in self._dirty():
            header = batch.header
            records += header.record_count
            if header.control or not header.record_count or passed.is_aborted(header):
                self._map.skip(header)
            elif not self._map.add(header, inflate(batch.data, header)):
                break
        else:
            self._map.end_offset = job.upper  # which lies beyond the last batch if a gap follows it
        self._live = self._map.live()
        groups = choosing.group(job.segments, job.segment_bytes, job.segment_index_bytes, self._map.end_offset)
        return Mapped(
            self._map.end_offset,
            len(self._map.offsets),
            records,
            self._map.keyless,
            [[segment.base_offset for segment in group] for group in groups],
        )

    def _dirty(self) -> Iterator[StoredBatch]:
        first_dirty = self._job.first_dirty
        for segment in self._job.segments:
            if segment.next_offset > first_dirty:
                yield from self._batches(segment, first_dirty)

    # -- writing ------------------------------------------------------------------------------------------------

    def clean(self, base_offsets: Sequence[int]) -> Cleaned | None:
        """Write what stays of the segments that start there as one `.cleaned` segment, durably.

        None if that would change nothing.
        """
        job = self._job
        group = [self._segments[each] for each in base_offsets]
        written = CleanedSegment(
            self._fs,
            stem_of(job.directory, base_offsets[0]),
            base_offsets[0],
            index_interval_bytes=job.index_interval_bytes,
            buffer_bytes=job.limits.buffer_bytes,
            throttle=self._throttle,
        )
        batches_kept = records_kept = 0
        changed = len(group) > 1
        for batch, is_last in self._batches_of(group):
            kept = self._marker(batch, written, is_last=is_last) if batch.header.control else self._data(batch, is_last)
            changed = changed or kept is not batch
            if kept is not None:
                written.append(kept.data, kept.header.last_offset, kept.header.max_timestamp)
                batches_kept += 1
                records_kept += kept.header.record_count
        if not changed or not batches_kept:
            written.abandon()
            return None
        sizes = written.finish()
        bytes_read = sum(segment.size_bytes for segment in group)
        return Cleaned(base_offsets[0], *sizes, bytes_read, batches_kept, records_kept)

    def _batches_of(self, group: Sequence[SegmentFacts]) -> Iterator[tuple[StoredBatch, bool]]:
        """Every batch, and whether it is the group's last."""
        last_segment = next((each for each in reversed(group) if each.size_bytes), None)
        for segment in group:
            for batch in self._batches(segment, segment.base_offset):
                ends_at = batch.position + batch.header.size
                yield batch, segment is last_segment and ends_at == segment.size_bytes

    def _marker(self, batch: StoredBatch, written: CleanedSegment, *, is_last: bool) -> StoredBatch | None:
        """A control batch as it stays; None if it goes. One of a transaction that is still there stays as it is."""
        header, job = batch.header, self._job
        if self._passed.ends_batches(header):
            if (entry := self._passed.entry_of(header)) is not None:
                written.keep_aborted(entry)
            return batch
        if header.base_offset >= self._map.end_offset or self._is_last_of_its_producer(header):
            return batch
        if not header.record_count:
            return batch if is_last else None
        if not header.has_delete_horizon:
            body = inflate(batch.data, header)
            everything = Selection([(0, len(body))], header.record_count, tombstones=False)
            return _stored(batch.position, rewrite(header, body, everything, job.now_ms + job.delete_retention_ms))
        if header.base_timestamp > job.now_ms:
            return batch
        return _stored(batch.position, emptied(header)) if is_last else None

    def _data(self, batch: StoredBatch, is_last: bool) -> StoredBatch | None:
        """The batch itself if it stays as it is; None if nothing of it does."""
        header = batch.header
        aborted = self._passed.is_aborted(header)
        if header.base_offset >= self._map.end_offset:
            return batch
        drop_tombstones = header.has_delete_horizon and header.base_timestamp <= self._job.now_ms
        body, selection = (b"", _NOTHING) if aborted else self._select(batch, drop_tombstones=drop_tombstones)
        if selection.kept:
            newly_marked = selection.tombstones and not header.has_delete_horizon
            if selection.kept == header.record_count and not newly_marked:
                return batch
            horizon_ms = self._job.now_ms + self._job.delete_retention_ms if newly_marked else None
            return _stored(batch.position, rewrite(header, body, selection, horizon_ms))
        if not (is_last or self._is_last_of_its_producer(header)):
            return None
        return batch if not header.record_count else _stored(batch.position, emptied(header))

    def _select(self, batch: StoredBatch, *, drop_tombstones: bool) -> tuple[bytes, Selection]:
        header = batch.header
        if header.base_offset < self._job.first_dirty or header.next_offset > self._map.end_offset:
            body = inflate(batch.data, header)
            return body, by_key(header, body, self._map.offsets, self._map.end_offset, drop_tombstones=drop_tombstones)
        first = bisect_left(self._live, header.base_offset)
        past = bisect_right(self._live, header.last_offset, first)
        if first == past:
            return b"", _NOTHING
        body = inflate(batch.data, header)
        return body, by_offset(header, body, self._live[first:past], drop_tombstones=drop_tombstones)

    def _is_last_of_its_producer(self, header: BatchHeader) -> bool:
        """Then its sequence, or a marker's epoch, is what the producer's next batch will be held against."""
        if header.producer_id < 0:
            return False
        if header.control:
            return self._job.epoch_of_producers.get(header.producer_id) == header.producer_epoch
        return self._job.last_offset_of_producers.get(header.producer_id) == header.last_offset

    # -- reading ------------------------------------------------------------------------------------------------

    def _batches(self, segment: SegmentFacts, from_offset: int) -> Iterator[StoredBatch]:
        """From the one that holds `from_offset`."""
        file = self._fs.open(stem_of(self._job.directory, segment.base_offset) + LOG_SUFFIX)
        start = _position_of(file, segment, from_offset) if from_offset > segment.base_offset else 0
        stretch = Stretch(start, segment.size_bytes, segment.base_offset, segment.next_offset)
        return batches(file, stretch, self._job.limits.buffer_bytes, self._throttle)


def _position_of(file: File, segment: SegmentFacts, offset: int) -> int:
    for place in places(file, 0, segment.size_bytes):
        if place.last_offset >= offset:
            return place.position
    return segment.size_bytes


def _stored(position: int, batch: bytearray) -> StoredBatch:
    return StoredBatch(position, peek(batch), memoryview(batch))
