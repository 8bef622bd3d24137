"""One partition's log: it gives offsets, keeps what was acknowledged, and serves it again.

Not thread safe: the event loop owns it, and no method waits for anything but the file system. The only part of its work
that may run elsewhere is `FlushTicket.sync`; the order in which things become durable is written down in `flush.py`.
What lies below `flushed_offset` survives a power cut. An fsync that fails takes the log out of service for everything
above it: after one, nobody knows what the disk holds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.header import BatchHeader, patch, stamp_append_time
from tidelog.storage import following, marking, retention, rolling, timestamps, truncation
from tidelog.storage.aborted import Aborted, AbortedTransaction
from tidelog.storage.aborted_index import AbortedEntry, AbortedIndexDamaged
from tidelog.storage.compaction import swap
from tidelog.storage.doomed import Doomed
from tidelog.storage.flush import Durability, FlushTicket
from tidelog.storage.health import Health
from tidelog.storage.replay import rebuild_aborted
from tidelog.storage.segment import LogSlice, Segment, SegmentFiles, TornWrite
from tidelog.storage.segments import Segments
from tidelog.storage.snapshot_files import SnapshotFiles
from tidelog.storage.walk import RELATIVE_OFFSET_MAX, Damage
from tidelog.types import LeaderEpoch, Offset, TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.clock import Clock
    from tidelog.config.topic import TopicConfig
    from tidelog.records.control import Marker
    from tidelog.storage.compaction.job import Cleaned
    from tidelog.storage.compaction.ticket import CleaningTicket
    from tidelog.storage.content import Content
    from tidelog.storage.data_dir import DataDir
    from tidelog.storage.epochs import EpochEnd
    from tidelog.storage.following import Followed
    from tidelog.storage.fs import File, Filesystem
    from tidelog.storage.index_memory import IndexMemory
    from tidelog.storage.open_files import OpenFiles
    from tidelog.storage.producers import SeenBatch
    from tidelog.storage.timestamps import TimestampedOffset
    from tidelog.storage.verification import Guard

_log = logging.getLogger(__name__)

_LOG_APPEND_TIME = "LogAppendTime"

_new_tuple = tuple.__new__


class Appended(NamedTuple):
    """Where a batch lies. `append_time_ms` is -1 unless the topic stamps its records with it."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Room(NamedTuple):
    """What the logs of one store share."""

    fs: Filesystem
    clock: Clock
    files: OpenFiles
    memory: IndexMemory
    before_truncation: Callable[[TopicPartition, int], None]
    """Makes sure that no recovery point on disk lies beyond the offset it is given."""
    log_start_moved: Callable[[TopicPartition, int], None]
    """Writes down, durably, that the records before the offset were deleted."""
    failed: Callable[[TopicPartition], None]
    """Hears of logs that are taken out of service."""


class Log:
    __slots__ = (
        "_health",
        "aborted",
        "clean_offset",
        "cleaning",
        "config",
        "directory",
        "doomed",
        "durability",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "room",
        "segments",
        "snapshots",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, room: Room, parent: DataDir, topic_partition: TopicPartition, config: TopicConfig, content: Content
    ) -> None:
        self.room = room
        self.topic_partition = topic_partition
        self.topic_id = content.topic_id
        self.config = config
        self.directory = f"{parent.path}/{topic_partition}"
        found = content.segments or [SegmentFiles(content.log_end_offset)]
        self.segments = Segments(room.fs, self.directory, room.files, room.memory, found)
        self.snapshots = SnapshotFiles(room.fs, self.directory, content.snapshot_offsets)
        self.producers = content.producers
        self.aborted = Aborted(room.fs, self.directory, content.segments)
        self.epochs = content.epochs
        self.log_start_offset = content.log_start_offset
        self.log_end_offset = content.log_end_offset
        self.durability = Durability(room.fs, self.directory, parent, content.flushed_offset)
        self.doomed = Doomed(room.fs)
        self.clean_offset = 0
        """Compaction has looked at everything below. The store knows it from a checkpoint."""
        self.cleaning: CleaningTicket | None = None
        """Of the cleaning that is under way and still welcome."""
        self._health = Health(str(topic_partition), lambda: room.failed(topic_partition))

    def create_directory(self) -> None:
        """Make the partition's place on disk; durable with the first flush."""
        with self._health.during("create the partition"):
            self.durability.create_directory(self.topic_id)

    def adopt(self, topic_id: TopicId) -> None:
        """Make a log whose files do not say whose it is, as after a crash right after its creation, that topic's."""
        self._health.check()
        with self._health.during("adopt the partition"):
            self.durability.write_metadata(topic_id)
        self.topic_id = topic_id

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """The recovery point: what lies below it is durable."""
        return self.durability.flushed_offset

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def last_leader_epoch(self) -> int:
        return self.epochs.latest

    @property
    def failure(self) -> str | None:
        """Why the log is out of service; None if it is well."""
        return self._health.failure

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.durability.flushed_offset

    @property
    def oldest_unflushed_ms(self) -> int:
        """When the first append came that no flush has been started for; -1 if there is none."""
        return self.durability.dirty_since_ms

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self.epochs.end_of(epoch, self.log_end_offset)

    # -- appending ----------------------------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int, guard: Guard | None = None
    ) -> Appended:
        """Give one checked batch its offsets and write it, once. A repeated batch is answered as the first time.

        `batch` is patched in place; `header` is what `peek` said of it before. A batch that begins a transaction needs
        the `guard` that was taken before the coordinator vouched for it.
        """
        if self._health.failure is not None:
            self._health.check()
        idempotent = header.producer_id >= 0
        if idempotent and (seen := self.producers.check(header, guard)) is not None:
            return self._appended_before(seen)
        config = self.config
        stamped = config.message_timestamp_type == _LOG_APPEND_TIME
        max_timestamp = now_ms if stamped else header.max_timestamp
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size = len(batch)
        segment = self.segments.active
        easy = segment.easy
        if (
            easy is None
            or easy.config is not config
            or segment.size + size > easy.size
            or last_offset > easy.last_offset
            or not 0 <= max_timestamp <= easy.max_timestamp
        ):
            segment = self.segment_for(size, base_offset, last_offset, max_timestamp, now_ms)
        if stamped:
            stamp_append_time(batch, 0, now_ms)
        patch(batch, 0, Offset(base_offset), LeaderEpoch(leader_epoch))
        position = self.write(segment, batch, size)
        segment.note(position, size, last_offset, max_timestamp, config.index_interval_bytes)
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if idempotent:
            self.producers.record(header, base_offset, now_ms)
        self.wrote(segment, last_offset + 1, now_ms)
        # As `Appended(...)`, but twice as fast.
        return _new_tuple(Appended, (base_offset, last_offset, now_ms if stamped else -1, self.log_start_offset, False))

    def append_marker(
        self,
        marker: Marker,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        now_ms: int,
        *,
        transaction_version: int,
    ) -> Appended:
        """End a producer's transaction, as its coordinator has decided."""
        self._health.check()
        self.producers.check_marker(marker, producer_id, producer_epoch, transaction_version)
        offset = marking.append(self, marker, producer_id, producer_epoch, leader_epoch, now_ms)
        return Appended(offset, offset, -1, self.log_start_offset, duplicate=False)

    def append_as_follower(self, buffer: bytes | bytearray | memoryview, now_ms: int) -> Followed:
        """Whole batches from the leader, kept as they are. What is cut off at the end is left out."""
        self._health.check()
        return following.append(self, buffer, now_ms)

    def segment_for(self, size: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The segment that takes a batch: the active one, or a new one."""
        segment, config = self.segments.active, self.config
        if size > config.segment_bytes:
            raise BrokerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes does not fit a segment of {config.segment_bytes} bytes: "
                "send smaller batches or raise segment.bytes",
            )
        if rolling.is_full(segment, config, size, last_offset) or rolling.is_aged_by(
            segment, config, max_timestamp, now_ms, self.topic_partition
        ):
            far = last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX
            return self.roll(now_ms, base_offset if far else self.log_end_offset)
        if not segment.exists:
            with self._health.during("create a segment"):
                segment.create(now_ms)
            self.durability.add_name()
        elif segment.size:
            segment.easy = rolling.easy(segment, config)
        return segment

    def write(self, segment: Segment, data: memoryview, size: int) -> int:
        """Where `data` was written. A write that fails leaves the log as it was, or takes it out of service."""
        try:
            return segment.write(data, size)
        except TornWrite as error:
            self._health.fail(f"{segment.file.path} ends in a torn write: {error}")
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except (OSError, Damage) as error:
            raise self._health.refusal("append", error) from error

    def wrote(self, segment: Segment, next_offset: int, now_ms: int) -> None:
        """Batches up to `next_offset` are written and noted."""
        self.log_end_offset = next_offset
        segment.modified_ms = now_ms
        if self.durability.dirty_since_ms < 0:
            self.durability.dirty_since_ms = now_ms

    def _appended_before(self, seen: SeenBatch) -> Appended:
        stamped = self.config.message_timestamp_type == _LOG_APPEND_TIME
        append_time_ms = seen.timestamp_ms if stamped else -1
        return Appended(seen.first_offset, seen.last_offset, append_time_ms, self.log_start_offset, duplicate=True)

    # -- rolling ------------------------------------------------------------------------------------------------

    def needs_roll(self, now_ms: int) -> bool:
        """Whether the active segment has been written to for segment.ms: nobody may append to it ever again."""
        return rolling.is_aged(self.segments.active, self.config, now_ms, self.topic_partition)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Close the active segment and go on in a new one: at the log end, so that recovery can tell a lost tail from
        a gap, or at `base_offset` if a gap is too wide for that.

        What was written is synced with the next flush, which may not call anything flushed before that.
        """
        self._health.check()
        active = self.segments.active
        new_base = self.log_end_offset if base_offset is None else base_offset
        if not active.size and active.base_offset == new_base:
            return active
        with self._health.during("roll a segment"):
            if active.size:
                self.durability.add_file(active.file.get())
            for file in (*active.save_indexes(), *self.aborted.save(active.base_offset)):
                self.durability.add_file(file)
            if not active.size:
                self.aborted.forget(active.base_offset)
            self.durability.add_file(self.snapshots.write(new_base, self.producers))
            self.snapshots.prune({*self.segments.base_offsets, new_base})
            segment = self.segments.add(new_base, now_ms)
        self.durability.add_name()
        return segment

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upto: int, min_one: bool) -> LogSlice | None:
        """Whole batches from the one that holds `offset`, at most `max_bytes`, ending at or before offset `upto`.

        None if there are none. With `min_one` the first batch comes even if it alone is larger than `max_bytes`.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        if self._health.failure is not None:
            upto = min(upto, self.flushed_offset)
            if offset >= upto:
                self._health.check()
        if offset >= upto or offset == self.log_end_offset:
            return None
        try:
            return self.segments.read(offset, self.log_end_offset, upto, max_bytes, min_one=min_one)
        except (OSError, Damage) as error:
            raise self._health.refusal("read", error) from error

    def aborted_transactions(self, from_offset: int, upto: int) -> list[AbortedTransaction]:
        """What a read_committed reader of `from_offset` to `upto` has to leave out, by first offset."""
        if not self.aborted:
            return []
        found = {AbortedTransaction(each[0], each[1]) for each in self.aborted_entries(from_offset, upto)}
        return sorted(found, key=lambda each: each.first_offset)

    def aborted_entries(self, from_offset: int, upto: int) -> list[AbortedEntry]:
        """As `aborted_transactions`, with all that is known of them, by their markers."""
        segment_base = self.segments.holding(from_offset).base_offset
        with self._health.during("look for aborted transactions"):
            try:
                return self.aborted.overlapping(segment_base, from_offset, upto)
            except AbortedIndexDamaged as damage:
                _log.warning("%s: an index of aborted transactions is damaged: %s", self.topic_partition, damage)
            self._mend_aborted()
            return self.aborted.overlapping(segment_base, from_offset, upto)

    def _mend_aborted(self) -> None:
        for segment, end_offset in self.segments.with_ends(self.log_end_offset):
            try:
                self.aborted.check(segment.base_offset)
            except AbortedIndexDamaged:
                now_ms = self.room.clock.now_ms()
                rebuild_aborted(self.aborted, segment, end_offset, self.segments, self.snapshots, now_ms)

    def offset_for_timestamp(self, target_ms: int) -> TimestampedOffset | None:
        """The first record that is as late as `target_ms`."""
        with self._health.during("search by time"):
            return timestamps.first_at_or_after(self.segments, target_ms, self.log_start_offset, self.log_end_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first of the records with the largest timestamp."""
        with self._health.during("search by time"):
            return timestamps.latest(self.segments, self.log_start_offset, self.log_end_offset)

    # -- flushing -----------------------------------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for one, or a rolled segment waits for its sync."""
        durability, config = self.durability, self.config
        if self._health.failure is not None or durability.flushing:
            return False
        unflushed = self.log_end_offset - durability.flushed_offset
        return (
            (unflushed > 0 and unflushed >= config.flush_messages)
            or 0 <= durability.dirty_since_ms <= now_ms - config.flush_ms
            or durability.has_files
        )

    def begin_flush(self) -> FlushTicket | None:
        """What has to be synced for everything appended so far to be durable; None if it is. One at a time."""
        self._health.check()
        active = self.segments.active
        with self._health.during("flush"):
            ticket = self.durability.begin(self.log_end_offset, active, self.epochs)
        if ticket is not None:
            # Readers stop at the high watermark, which will stand here.
            active.remember(self.log_end_offset, active.size)
        return ticket

    def finish_flush(self, ticket: FlushTicket) -> None:
        """Take the ticket back from the thread that synced it: `flushed_offset` moves up, or the log has failed."""
        if self._health.closed:
            return  # it was deleted under the thread's feet
        self.durability.finish(ticket, self.epochs)
        assert self.durability.flushed_offset <= self.log_end_offset, "flushed more than was written"
        if ticket.error is not None:
            self._health.fail(f"fsync failed: {ticket.error}")
            self._health.check()

    def flush(self) -> None:
        """All of it at once, blocking."""
        ticket = self.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.finish_flush(ticket)

    # -- shortening ---------------------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int, upto: int | None = None) -> int:
        """Delete the oldest segments as far as they may go, none beyond `upto` (the high watermark). How many went."""
        self._health.check()
        with self._health.during("apply retention"):
            choice = retention.choose(
                self._segment_facts(),
                self.config,
                now_ms=now_ms,
                size_bytes=self.segments.size_bytes,
                log_start_offset=self.log_start_offset,
                upto=self.log_end_offset if upto is None else upto,
            )
        if choice.roll_first:
            self.roll(now_ms)
        if choice.oldest:
            gone = self.segments.drop_oldest(choice.oldest)
            self._move_log_start(self.segments.first_offset)
            _log.info("%s: %d segments go, it starts at %d", self.topic_partition, len(gone), self.log_start_offset)
            with self._health.during("delete segments"):
                for segment in gone:
                    self.snapshots.forget(segment.base_offset)
                    self.aborted.forget(segment.base_offset)
                    self.doomed.doom(segment, now_ms + self.config.file_delete_delay_ms)
        return choice.oldest

    def advance_log_start(self, offset: int) -> None:
        """Records before `offset` are deleted, durably. Their space comes back with the next retention run."""
        self._health.check()
        if not 0 <= offset <= self.log_end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete {self.topic_partition} up to {offset}: it ends at {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            with self._health.during("delete records"):
                self.room.log_start_moved(self.topic_partition, offset)
            self._move_log_start(offset)

    def follow_log_start(self, offset: int) -> None:
        """The leader deleted the records before `offset`. Not durable at once: it says so again after a restart."""
        self._move_log_start(min(offset, self.log_end_offset))

    def truncate_to(self, offset: int) -> None:
        """Cut off everything from `offset` on, batches that only begin before it included."""
        self._health.check()
        if offset >= self.log_end_offset:
            return
        self.cleaning = None
        with self._health.during("truncate", fatal=True):
            truncation.truncate_to(self, offset, self.room.clock.now_ms())
        self.clean_offset = min(self.clean_offset, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empty the log; the next record will have `offset`."""
        self._health.check()
        self.cleaning = None
        with self._health.during("truncate", fatal=True):
            truncation.truncate_fully_and_start_at(self, offset, self.room.clock.now_ms())
        self.clean_offset = offset

    def put_cleaned(self, ticket: CleaningTicket, base_offsets: Sequence[int], cleaned: Cleaned) -> bool:
        """Put a cleaned segment in the place of those it was made of. False if they are not what they were."""
        self._health.check()
        sources = ticket.sources(self, base_offsets) if self.cleaning is ticket else None
        if sources is None:
            return False
        with self._health.during("replace segments by a cleaned one", fatal=True):
            swap.replace(self, sources, cleaned)
        ticket.replaced(base_offsets)
        return True

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget idempotent producers that were silent for `producer.id.expiration.ms`."""
        return self.producers.expire(now_ms, expiration_ms)

    def _move_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_start(offset)

    def _segment_facts(self) -> Iterator[retention.SegmentFacts]:
        active = self.segments.active
        for segment, end_offset in self.segments.with_ends(self.log_end_offset):
            timestamp_ms = segment.largest_timestamp()
            if timestamp_ms < 0:
                timestamp_ms = segment.modified_ms
            yield retention.SegmentFacts(end_offset, segment.size, timestamp_ms, segment is active)

    # -- the end ------------------------------------------------------------------------------------------------

    def prepare_close(self) -> FlushTicket | None:
        """Write what a clean start reads instead of the segments. The ticket makes it, and all data, durable."""
        self._health.check()
        self.durability.forget_ticket(self.epochs)
        with self._health.during("close"):
            for file in [file for segment in self.segments for file in self._save_indexes(segment)]:
                self.durability.add_file(file)
                self.durability.add_name()
            if self.segments.size_bytes and self.snapshots.latest != self.log_end_offset:
                self.durability.add_file(self.snapshots.write(self.log_end_offset, self.producers))
                self.durability.add_name()
                self.snapshots.prune(self.segments.base_offsets)
        return self.begin_flush()

    def _save_indexes(self, segment: Segment) -> tuple[File, ...]:
        return (*segment.save_indexes(), *self.aborted.save(segment.base_offset))

    def close(self) -> None:
        """Flush everything and let go of all files, blocking."""
        ticket = self.prepare_close()
        if ticket is not None:
            ticket.sync()
            self.finish_flush(ticket)
        self.abandon()

    def abandon(self) -> None:
        """Let go of all files as they are: the log is closed or deleted."""
        self.cleaning = None
        self.segments.discard()
        self._health.close()
