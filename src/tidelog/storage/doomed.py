"""Files that are deleted in two steps: renamed at once, so that nothing finds them, and removed some time later.

The delay is `file.delete.delay.ms`; what a crash leaves behind is recognised by its name at the next start.
"""

from __future__ import annotations

import logging

from tidelog.storage.content import DELETED_SUFFIX
from tidelog.storage.fs import Filesystem, remove_if_there
from tidelog.storage.segment import LOG_SUFFIX, Segment
from tidelog.storage.snapshots import SUFFIX as SNAPSHOT_SUFFIX

_log = logging.getLogger(__name__)


class Doomed:
    __slots__ = ("_due", "_fs")

    def __init__(self, fs: Filesystem) -> None:
        self._fs = fs
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def doom(self, segment: Segment, remove_at_ms: int, *, keep_snapshot: bool = False) -> None:
        """Take the segment's names away. A reader that holds the log file open can still finish.

        The producers' snapshot goes too, unless the segment's records, or what compaction left of them, stay.
        """
        segment.discard()
        snapshot = () if keep_snapshot else (SNAPSHOT_SUFFIX,)
        for suffix in (LOG_SUFFIX, ".index", ".timeindex", ".txnindex", *snapshot):
            path = segment.stem + suffix
            try:
                self._fs.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue  # indexes and snapshots need not exist
            self._due.append((remove_at_ms, path + DELETED_SUFFIX))

    def remove_due(self, now_ms: int) -> int:
        due = [path for at_ms, path in self._due if at_ms <= now_ms]
        self._due = [each for each in self._due if each[0] > now_ms]
        for path in due:
            remove_if_there(self._fs, path)
        return len(due)
