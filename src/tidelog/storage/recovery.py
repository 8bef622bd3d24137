"""Opening a partition: what a clean stop left is believed, what a crash left is walked through.

After an unclean stop, every batch from the segment of the recovery point on is checked. The log ends before the first
one that is torn or damaged: what follows it was never acknowledged, unless the disk itself failed, which is said
loudly. Below the recovery point a batch whose checksum fails is kept, since cutting there would take acknowledged
records that are well. Nothing that lies in these files may stop a partition from opening.

Runs in a thread of its own per partition: it shares no open files and no index memory with anybody.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import offset_index, time_index
from tidelog.storage.aborted import Aborted
from tidelog.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CheckpointDamaged,
    format_epochs,
    parse_epochs,
    parse_partition_metadata,
)
from tidelog.storage.compaction.swap import finish_interrupted
from tidelog.storage.content import Content, Listing, list_content
from tidelog.storage.epochs import Epochs
from tidelog.storage.fs import Filesystem, read_file, remove_if_there, replace_file
from tidelog.storage.index_memory import IndexMemory
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.producers import Producers
from tidelog.storage.replay import marker_at, producers_at, replay
from tidelog.storage.segment import Segment, SegmentFiles, remove_files
from tidelog.storage.segments import Segments
from tidelog.storage.snapshot_files import SnapshotFiles
from tidelog.storage.walk import Damage, checked
from tidelog.types import ZERO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.records.header import BatchHeader

_log = logging.getLogger(__name__)

_SMALL_FILE_BYTES_MAX = 16 << 20
_UNBOUNDED = 2**62


class Known(NamedTuple):
    """What the data directory's checkpoints say about a partition."""

    recovery_point: int | None
    log_start_offset: int
    clean: bool
    """Whether the last stop was clean: then everything ends at the recovery point."""


class Recovery:
    """One partition being opened. `run` once, then take `content`."""

    def __init__(self, fs: Filesystem, directory: str, config: TopicConfig, known: Known, now_ms: int) -> None:
        self._fs = fs
        self._directory = directory
        self._config = config
        self._known = known
        self._now_ms = now_ms
        self._names_changed = False
        self._recovery_point = known.recovery_point or 0
        self._producers = Producers()
        self._aborted = Aborted(fs, directory)
        self._epochs = Epochs()

    def run(self) -> Content:
        entries = self._fs.scan(self._directory)
        if finish_interrupted(self._fs, self._directory, entries):
            entries = self._fs.scan(self._directory)
        listing = list_content(entries)
        for name in listing.leftovers:
            remove_if_there(self._fs, f"{self._directory}/{name}")
        topic_id = self._topic_id(listing)
        snapshots = SnapshotFiles(self._fs, self._directory, listing.snapshot_offsets)
        if not listing.segments:
            snapshots.remove_after(-1)
            content = self._nothing()
        else:
            pool, memory = OpenFiles(self._fs, 2), IndexMemory(_UNBOUNDED)
            segments = Segments(self._fs, self._directory, pool, memory, listing.segments)
            try:
                content = self._open(listing, segments, snapshots)
            finally:
                segments.discard()
        content.topic_id = topic_id
        content.snapshot_offsets = list(snapshots.offsets)
        return content

    # -- the two ways -------------------------------------------------------------------------------------------

    def _nothing(self) -> Content:
        start = self._known.log_start_offset
        if self._recovery_point > start:
            self._lost(start)
        return Content(log_start_offset=start, log_end_offset=start, flushed_offset=start)

    def _open(self, listing: Listing, segments: Segments, snapshots: SnapshotFiles) -> Content:
        self._aborted = Aborted(self._fs, self._directory, listing.segments)
        self._load_epochs(listing, segments)
        if self._known.clean and _ends_at(listing.segments[-1], self._known.recovery_point):
            end_offset = self._recovery_point
            self._producers = producers_at(end_offset, segments, snapshots, self._now_ms)
            for file in self._aborted.save(segments.active.base_offset):
                file.sync()
        else:
            end_offset = self._recover(segments, snapshots)
        start_offset = max(self._known.log_start_offset, segments.first_offset)
        if start_offset > end_offset:
            return self._start_over(segments, snapshots, start_offset, end_offset)
        self._epochs.truncate_start(start_offset)
        self._finish()
        return Content(
            segments=[self._files_of(each) for each in segments],
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            flushed_offset=end_offset,
            producers=self._producers,
            epochs=self._epochs,
        )

    def _start_over(self, segments: Segments, snapshots: SnapshotFiles, start_offset: int, end_offset: int) -> Content:
        """All records that are left were deleted before: only the offset at which to go on matters."""
        _log.warning("%s ends at %d, before its log start %d: it is emptied", self._directory, end_offset, start_offset)
        for segment in segments.drop_from(0):
            remove_files(self._fs, segment.stem)
        snapshots.remove_after(-1)
        self._epochs.truncate_end(0)
        self._names_changed = True
        self._finish()
        return Content(log_start_offset=start_offset, log_end_offset=start_offset, flushed_offset=start_offset)

    # -- walking ------------------------------------------------------------------------------------------------

    def _recover(self, segments: Segments, snapshots: SnapshotFiles) -> int:
        """Walk from the recovery point's segment on, cut what is damaged, and return where the log ends.

        A segment that ends at the recovery point is walked, too: it may have been closed since. Its records are safe
        then, but not what was written beside them when it was closed.
        """
        start_offset = segments.holding(max(self._recovery_point - 1, segments.first_offset)).base_offset
        walked = [each for each in segments if each.base_offset >= start_offset]
        self._producers = producers_at(start_offset, segments, snapshots, self._now_ms)
        snapshots.remove_after(start_offset)
        self._epochs.truncate_end(start_offset)
        end_offset = start_offset
        for at, segment in enumerate(walked):
            if segment.base_offset > start_offset:
                # Not the one found there: it may stem from a history that was cut away since.
                snapshots.write(segment.base_offset, self._producers).sync()
                self._names_changed = True
            next_base = walked[at + 1].base_offset if at + 1 < len(walked) else None
            end_offset, damage = self._walk(segment, _UNBOUNDED if next_base is None else next_base)
            if damage is not None:
                self._cut(segment, damage, end_offset)
            if damage is not None or self._lost_tail(segment, end_offset, next_base):
                self._drop_after(segments, segment, snapshots)
                break
        self._make_durable(walked, segments)
        if end_offset < self._recovery_point:
            self._lost(end_offset)
        return end_offset

    def _walk(self, segment: Segment, limit: int) -> tuple[int, Damage | None]:
        """Check every batch, rebuilding indexes, producers and epochs. Where it ends, and the damage that ended it."""
        next_offset = segment.base_offset
        segment.begin_rebuild()
        self._aborted.begin_rebuild(segment.base_offset)
        interval_bytes = self._config.index_interval_bytes
        try:
            for position, header, sound in checked(segment.file.get(), 0, segment.size, segment.base_offset):
                if header.next_offset > limit:
                    raise Damage(position, f"offset {header.last_offset}, but the next segment starts at {limit}")
                if sound:
                    self._replay(segment, position, header)
                    segment.note(position, header.size, header.last_offset, header.max_timestamp, interval_bytes)
                elif header.next_offset <= self._recovery_point:
                    _log.error(
                        "%s is damaged: the checksum of the batch at offset %d, byte %d, does not hold. It lies below "
                        "the recovery point %d, so it is kept for what follows it; its readers will get an error",
                        segment.file.path,
                        header.base_offset,
                        position,
                        self._recovery_point,
                    )
                    segment.note(position, header.size, header.last_offset, -1, interval_bytes)
                else:
                    raise Damage(position, "the checksum does not hold")
                self._epochs.assign(header.leader_epoch, header.base_offset)
                next_offset = header.next_offset
        except Damage as damage:
            return next_offset, damage
        return next_offset, None

    def _replay(self, segment: Segment, position: int, header: BatchHeader) -> None:
        completed = replay(self._producers, header, self._now_ms, marker_at(segment.file.get(), position, header))
        if completed is not None:
            self._aborted.ended(segment.base_offset, completed, self._producers.transactions)

    def _lost_tail(self, segment: Segment, end_offset: int, next_base: int | None) -> bool:
        """Whether the segment ends too early, though with a whole batch: then the next one is no continuation.

        Below the recovery point a gap may be compaction's, and what follows it was acknowledged in any case.
        """
        if next_base is None or end_offset == next_base:
            return False
        if next_base > self._recovery_point:
            _log.warning("%s ends at %d, before the next segment at %d", segment.file.path, end_offset, next_base)
            return True
        if not self._config.compacted:
            _log.error("%s: records %d to %d are missing", segment.file.path, end_offset, next_base - 1)
        return False

    def _cut(self, segment: Segment, damage: Damage, end_offset: int) -> None:
        lost_bytes = segment.size - damage.position
        level = logging.ERROR if end_offset < self._recovery_point else logging.WARNING
        _log.log(
            level,
            "%s: cutting %d bytes after offset %d %s",
            segment.file.path,
            lost_bytes,
            end_offset - 1,
            damage,
        )
        segment.file.get().truncate(damage.position)
        segment.size = damage.position

    def _drop_after(self, segments: Segments, damaged: Segment, snapshots: SnapshotFiles) -> None:
        gone = segments.drop_from(damaged.base_offset + 1)
        for segment in gone:
            _log.error(
                "%s: dropping it (%d bytes), since it follows the damaged %s",
                segment.file.path,
                segment.size,
                damaged.file.path,
            )
            segment.discard()
            remove_files(self._fs, segment.stem)
            snapshots.remove(segment.base_offset)
            self._aborted.forget(segment.base_offset)
        self._names_changed = self._names_changed or bool(gone)

    def _make_durable(self, walked: list[Segment], segments: Segments) -> None:
        """A killed process leaves its writes in the page cache: they are good only once they are synced."""
        kept = set(segments)
        for segment in walked:
            if segment not in kept:
                continue
            if segment.exists:
                segment.file.get().sync()
            for file in (*segment.save_indexes(), *self._aborted.save(segment.base_offset)):
                file.sync()
                self._names_changed = True

    # -- the small files ----------------------------------------------------------------------------------------

    def _topic_id(self, listing: Listing) -> TopicId:
        if PARTITION_METADATA not in listing.names:
            return ZERO_TOPIC_ID
        try:
            return parse_partition_metadata(self._read(PARTITION_METADATA))
        except CheckpointDamaged as damage:
            _log.error("%s/%s is damaged: %s", self._directory, PARTITION_METADATA, damage)
            return ZERO_TOPIC_ID

    def _load_epochs(self, listing: Listing, segments: Segments) -> None:
        if LEADER_EPOCHS in listing.names:
            try:
                self._epochs = Epochs(parse_epochs(self._read(LEADER_EPOCHS)))
            except CheckpointDamaged as damage:
                _log.warning("%s/%s is damaged, rebuilding it: %s", self._directory, LEADER_EPOCHS, damage)
            else:
                return
        for segment in segments:
            try:
                for _, header in segment.headers():
                    self._epochs.assign(header.leader_epoch, header.base_offset)
            except Damage as damage:
                _log.warning("%s: leader epochs may be missing: %s", segment.file.path, damage)
        self._epochs.changed = True

    def _finish(self) -> None:
        if self._epochs.changed:
            replace_file(self._fs, f"{self._directory}/{LEADER_EPOCHS}", format_epochs(self._epochs.starts))
            self._epochs.changed = False
        elif self._names_changed:
            self._fs.sync_dir(self._directory)

    def _read(self, name: str) -> bytes:
        return read_file(self._fs, f"{self._directory}/{name}", _SMALL_FILE_BYTES_MAX)

    def _lost(self, end_offset: int) -> None:
        _log.error(
            "%s ends at offset %d, but was flushed up to %d: acknowledged records are missing from the disk",
            self._directory,
            end_offset,
            self._recovery_point,
        )

    def _files_of(self, segment: Segment) -> SegmentFiles:
        return SegmentFiles(
            segment.base_offset,
            segment.size if segment.exists else offset_index.MISSING,
            segment.index.saved_entries * offset_index.ENTRY_SIZE,
            segment.times.saved_entries * time_index.ENTRY_SIZE,
            segment.modified_ms,
            self._aborted.bytes_of(segment.base_offset),
        )


def _ends_at(active: SegmentFiles, end_offset: int | None) -> bool:
    """Whether the active segment can be one that ends at `end_offset`, as far as a listing shows."""
    if end_offset is None or active.base_offset > end_offset:
        return False
    return (active.base_offset == end_offset) == (active.log_bytes == 0)
