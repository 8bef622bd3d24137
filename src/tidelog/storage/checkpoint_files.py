"""The checkpoints of one data directory: recovery points, log start offsets, high watermarks, how far logs are
compacted, the clean-stop marker.

Every file is replaced as a whole and durably. The event loop writes them when a log is cut or its start moves, and a
thread every minute, so there is a lock, and a periodic writer that comes too late gives way: a recovery point that was
lowered for a cut must not be raised again by figures from before it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tidelog.storage.checkpoints import (
    CLEAN_OFFSETS,
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_CONTENT,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointDamaged,
    format_offsets,
    parse_offsets,
)
from tidelog.storage.fs import read_file, remove_if_there, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.storage.fs import Filesystem
    from tidelog.types import TopicPartition

_log = logging.getLogger(__name__)

_BYTES_MAX = 256 << 20


class CheckpointFiles:
    def __init__(self, fs: Filesystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._lock = threading.Lock()
        self._on_disk: dict[str, dict[TopicPartition, int] | None] = {}
        self.version = 0
        """Rises with every change that periodic writers did not know of."""

    def load(self) -> None:
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEAN_OFFSETS):
            self._on_disk[name] = self._load(name)

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        return self._on_disk.get(RECOVERY_POINTS) or {}

    @property
    def log_start_offsets(self) -> Mapping[TopicPartition, int]:
        return self._on_disk.get(LOG_START_OFFSETS) or {}

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return self._on_disk.get(HIGH_WATERMARKS) or {}

    @property
    def clean_offsets(self) -> Mapping[TopicPartition, int]:
        return self._on_disk.get(CLEAN_OFFSETS) or {}

    def write(self, version: int, offsets: Mapping[str, dict[TopicPartition, int]]) -> bool:
        """Write the files named, as far as they changed. False if `version` is not the present one any more."""
        with self._lock:
            if version != self.version:
                return False
            for name, values in offsets.items():
                self._replace(name, values)
            return True

    def supersede(self) -> None:
        """What periodic writers have prepared is out of date from now on."""
        with self._lock:
            self.version += 1

    def lower_recovery_point(self, topic_partition: TopicPartition, offset: int) -> None:
        """Before a cut at `offset`: what is written in place of the lost part is neither durable nor compacted yet."""
        with self._lock:
            self.version += 1
            for name in (RECOVERY_POINTS, CLEAN_OFFSETS):
                points = self._on_disk.get(name) or {}
                if points.get(topic_partition, 0) > offset:
                    self._replace(name, {**points, topic_partition: offset})

    def forget(self, topic_partition: TopicPartition) -> None:
        """Before a partition is made: what was written down of another one with its name does not hold for it."""
        with self._lock:
            self.version += 1
            for name, values in list(self._on_disk.items()):
                if values and topic_partition in values:
                    self._replace(name, {each: values[each] for each in values if each != topic_partition})

    def write_log_start(self, topic_partition: TopicPartition, offset: int) -> None:
        with self._lock:
            self.version += 1
            starts = self._on_disk.get(LOG_START_OFFSETS) or {}
            self._replace(LOG_START_OFFSETS, {**starts, topic_partition: offset})

    def take_clean_marker(self) -> bool:
        """Whether the last stop was clean. From here on it counts as unclean until the next clean one."""
        path = f"{self._directory}/{CLEAN_SHUTDOWN}"
        if not self._fs.exists(path):
            return False
        remove_if_there(self._fs, path)
        self._fs.sync_dir(self._directory)
        return True

    def put_clean_marker(self) -> None:
        """Last of all, when everything else is durable."""
        replace_file(self._fs, f"{self._directory}/{CLEAN_SHUTDOWN}", CLEAN_SHUTDOWN_CONTENT)

    def _replace(self, name: str, values: dict[TopicPartition, int]) -> None:
        if self._on_disk.get(name) != values:
            replace_file(self._fs, f"{self._directory}/{name}", format_offsets(values))
            self._on_disk[name] = values

    def _load(self, name: str) -> dict[TopicPartition, int] | None:
        path = f"{self._directory}/{name}"
        try:
            return parse_offsets(read_file(self._fs, path, _BYTES_MAX))
        except FileNotFoundError:
            return None
        except CheckpointDamaged as damage:
            _log.error("%s is damaged and will be written anew: %s", path, damage)
            return None
