"""All partitions of a broker on its data directories: found, opened, created, deleted, looked after, closed.

    store = LogStore(dirs, fs, clock, open_files_max=1000, recovery_threads=2)
    store.lock(); store.claim(broker_id, cluster_id); store.open(config_of_topic)
    ...
    store.close()

The event loop owns it, as it owns the logs; `open` and `close` block and may run in a thread while nobody else uses it.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.storage.checkpoints import CLEAN_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.content import Content
from tidelog.storage.data_dir import DELETE_SUFFIX, STRAY_SUFFIX, DataDir, Meta
from tidelog.storage.errors import StoreError
from tidelog.storage.fs import remove_tree
from tidelog.storage.index_memory import IndexMemory
from tidelog.storage.log import Log, Room
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.opening import open_all, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tidelog.clock import Clock
    from tidelog.config.topic import TopicConfig
    from tidelog.storage.flush import FlushTicket
    from tidelog.storage.fs import Filesystem, Space
    from tidelog.types import TopicId, TopicPartition

_log = logging.getLogger(__name__)

INDEX_ENTRIES_MAX = 8 << 20
"""64 MB: the offset indexes of some thirty full segments, or of all that a broker with small ones has."""

STRAY_KEPT_MS = 24 * 3600 * 1000
"""Time for somebody to notice that a log was none of the cluster's, and to take it back."""

CLOSE_THREADS = 16
"""Syncs that wait at the same time share the file system's commits: more of them than cores is faster."""


class CheckpointTicket:
    """Checkpoints as they should be now: collected on the event loop, written in any thread."""

    __slots__ = ("_work",)

    def __init__(self, work: Sequence[tuple[DataDir, int, dict[str, dict[TopicPartition, int]]]]) -> None:
        self._work = work

    def write(self) -> None:
        for data_dir, version, offsets in self._work:
            if not data_dir.checkpoints.write(version, offsets):
                _log.debug("%s: a log was cut meanwhile, checkpoints are left to the next round", data_dir.path)


class LogStore:
    def __init__(
        self,
        dirs: Sequence[str | Path],
        fs: Filesystem,
        clock: Clock,
        *,
        open_files_max: int,
        recovery_threads: int,
        index_entries_max: int = INDEX_ENTRIES_MAX,
    ) -> None:
        assert dirs, "a store needs a directory"
        self._fs = fs
        self._clock = clock
        self._threads = recovery_threads
        self._data_dirs = [DataDir(fs, str(each).rstrip("/") or "/") for each in dirs]
        self._room = Room(
            fs,
            clock,
            OpenFiles(fs, open_files_max),
            IndexMemory(index_entries_max),
            self._before_truncation,
            self._log_start_moved,
            self._log_failed,
        )
        self._homes: dict[TopicPartition, DataDir] = {}
        self._doomed: list[tuple[int, str]] = []
        self._strays: list[tuple[int, str]] = []
        self._set_aside: set[TopicPartition] = set()
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As the checkpoints had them at the start."""
        self.on_failure: Callable[[TopicPartition], None] = lambda _topic_partition: None
        """Called when a log is taken out of service, on the event loop."""

    # -- starting -----------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Keep other brokers away from the directories; StoreError if one is there already."""
        try:
            for data_dir in self._data_dirs:
                data_dir.lock()
        except StoreError:
            self._unlock()
            raise

    def read_meta(self) -> Meta | None:
        """Whose directories these are, if anybody said so yet."""
        return next(filter(None, (each.read_meta() for each in self._data_dirs)), None)

    def claim(self, broker_id: int, cluster_id: str) -> None:
        for data_dir in self._data_dirs:
            data_dir.claim(Meta(broker_id, cluster_id))

    def open(self, configs: Callable[[str], TopicConfig]) -> None:
        """Open every partition there is. Blocking; what a crash left is recovered in parallel."""
        tasks = plan(self._data_dirs, configs)
        homes: dict[TopicPartition, DataDir] = {}
        for task in tasks:
            other = homes.setdefault(task.topic_partition, task.data_dir)
            if other is not task.data_dir:
                raise StoreError(
                    f"{task.topic_partition} lies in both {other.path} and {task.data_dir.path}: move one of them away"
                )
        for data_dir in self._data_dirs:
            self.high_watermarks.update(data_dir.checkpoints.high_watermarks)
            self._strays += [(self._clock.now_ms() + STRAY_KEPT_MS, path) for path in data_dir.strays]
        for opened in open_all(self._fs, self._clock, tasks, self._threads * len(self._data_dirs)):
            topic_partition = opened.topic_partition
            self._homes[topic_partition] = opened.data_dir
            if opened.content is None:
                self._set_aside.add(topic_partition)
            else:
                log = Log(self._room, opened.data_dir, topic_partition, opened.config, opened.content)
                log.clean_offset = opened.data_dir.checkpoints.clean_offsets.get(topic_partition, 0)
                self.logs[topic_partition] = log

    # -- partitions ---------------------------------------------------------------------------------------------

    def create(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> Log:
        """A new, empty partition, in the directory that has the fewest."""
        assert topic_partition not in self.logs, "this partition exists"
        if topic_partition in self._homes:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic_partition} has files in {self._homes[topic_partition].path} that could not be opened or are "
                "another topic's: repair them or move them away, and restart",
            )
        data_dir = min(self._data_dirs, key=lambda each: each.partitions)
        log = Log(self._room, data_dir, topic_partition, config, Content(topic_id=topic_id))
        try:
            data_dir.checkpoints.forget(topic_partition)
        except OSError as error:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot create {topic_partition}: {error}") from error
        log.create_directory()
        data_dir.partitions += 1
        self._homes[topic_partition] = data_dir
        self.logs[topic_partition] = log
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """The partition is gone at once; its files go after `file.delete.delay.ms`. An OSError leaves it as it was."""
        delay_ms = self.logs[topic_partition].config.file_delete_delay_ms
        self._doomed.append((self._clock.now_ms() + delay_ms, self._part_with(topic_partition, DELETE_SUFFIX)))

    def stray(self, topic_partition: TopicPartition) -> str:
        """As `delete`, for a partition that nobody asked to delete: its files stay for a day, under the path given."""
        path = self._part_with(topic_partition, STRAY_SUFFIX)
        self._strays.append((self._clock.now_ms() + STRAY_KEPT_MS, path))
        return path

    def _part_with(self, topic_partition: TopicPartition, kind: str) -> str:
        # The name first: as long as it is there, the partition is, and deleting it can be tried again.
        path = self._homes[topic_partition].rename_for_deletion(topic_partition, kind)
        self.logs.pop(topic_partition).abandon()
        self.high_watermarks.pop(topic_partition, None)
        del self._homes[topic_partition]
        return path

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Stop using a partition and leave its files as they are."""
        self.logs.pop(topic_partition).abandon()
        self._set_aside.add(topic_partition)

    @property
    def directories(self) -> list[str]:
        return [each.path for each in self._data_dirs]

    def directory_of(self, topic_partition: TopicPartition) -> str:
        """The data directory that holds the partition."""
        return self._homes[topic_partition].path

    def disk_usage(self, directory: str) -> Space:
        return self._fs.space(directory)

    # -- looking after them -------------------------------------------------------------------------------------

    def run_maintenance(self, now_ms: int) -> int:
        """Remove files whose time has come. Returns how many files and directories went."""
        removed = sum(log.doomed.remove_due(now_ms) for log in self.logs.values() if log.doomed)
        due = [path for at_ms, path in (*self._doomed, *self._strays) if at_ms <= now_ms]
        self._doomed = [each for each in self._doomed if each[0] > now_ms]
        self._strays = [each for each in self._strays if each[0] > now_ms]
        for path in due:
            remove_tree(self._fs, path)
        return removed + len(due)

    def prepare_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> CheckpointTicket:
        """What to write down now, so that a start after a crash has little to walk. Written by the ticket."""
        watermarks = self.high_watermarks if high_watermarks is None else high_watermarks
        work = []
        for data_dir in self._data_dirs:
            here = {each: log for each, log in self.logs.items() if self._homes[each] is data_dir}
            old = data_dir.checkpoints
            recovery_points = {each: old.recovery_points[each] for each in self._left_alone(old.recovery_points)}
            log_starts = {each: old.log_start_offsets[each] for each in self._left_alone(old.log_start_offsets)}
            clean_offsets = {each: old.clean_offsets[each] for each in self._left_alone(old.clean_offsets)}
            for each, log in here.items():
                if log.failure is not None:
                    continue  # what was written down of it before is all that is known
                recovery_points[each] = log.flushed_offset
                if log.clean_offset:
                    clean_offsets[each] = log.clean_offset
                if log.log_start_offset:
                    # Also where the first segment's name says the same: a crash can bring removed segments back.
                    log_starts[each] = log.log_start_offset
            offsets = {
                RECOVERY_POINTS: recovery_points,
                LOG_START_OFFSETS: log_starts,
                CLEAN_OFFSETS: clean_offsets,
                HIGH_WATERMARKS: {each: offset for each, offset in watermarks.items() if each in here},
            }
            work.append((data_dir, old.version, offsets))
        return CheckpointTicket(work)

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """`prepare_checkpoints` and its writing at once, blocking."""
        self.prepare_checkpoints(high_watermarks).write()

    def _left_alone(self, checkpointed: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Partitions that are not open, or not well: what is known of them stays written down."""
        return [each for each in checkpointed if each in self._set_aside or self._is_unwell(each)]

    def _is_unwell(self, topic_partition: TopicPartition) -> bool:
        log = self.logs.get(topic_partition)
        return log is not None and log.failure is not None

    def _before_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        self._homes[topic_partition].checkpoints.lower_recovery_point(topic_partition, offset)

    def _log_start_moved(self, topic_partition: TopicPartition, offset: int) -> None:
        self._homes[topic_partition].checkpoints.write_log_start(topic_partition, offset)

    def _log_failed(self, topic_partition: TopicPartition) -> None:
        self.on_failure(topic_partition)

    # -- stopping -----------------------------------------------------------------------------------------------

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """A clean stop: everything flushed, indexes and snapshots written, checkpoints, and last the marker."""
        unwell = self._flush_logs()
        for data_dir in self._data_dirs:
            # A periodic writer may still be at it, in a thread that nobody waits for: the last word is ours.
            data_dir.checkpoints.supersede()
        self.write_checkpoints(high_watermarks)
        for log in self.logs.values():
            log.abandon()
        for _, path in self._doomed:
            remove_tree(self._fs, path)
        self._doomed = []
        for data_dir in self._data_dirs:
            data_dir.sync_names()
            if data_dir in unwell:
                _log.error("%s: not stopped cleanly, the next start will recover it", data_dir.path)
            else:
                data_dir.checkpoints.put_clean_marker()
        self._unlock()

    def abandon(self) -> None:
        """Let go of the directories and say nothing of what is in them: for a start that failed half-way."""
        self._unlock()

    def _flush_logs(self) -> set[DataDir]:
        """The data directories in which something could not be made durable."""
        unwell: set[DataDir] = set()
        tickets: list[tuple[Log, FlushTicket]] = []
        for topic_partition, log in self.logs.items():
            try:
                ticket = log.prepare_close()
            except BrokerError:
                unwell.add(self._homes[topic_partition])
                continue
            if ticket is not None:
                tickets.append((log, ticket))
        with ThreadPoolExecutor(CLOSE_THREADS, thread_name_prefix="close") as executor:
            list(executor.map(lambda each: each[1].sync(), tickets))
        for log, ticket in tickets:
            try:
                log.finish_flush(ticket)
            except BrokerError:
                unwell.add(self._homes[log.topic_partition])
        return unwell

    def _unlock(self) -> None:
        for data_dir in self._data_dirs:
            data_dir.unlock()
