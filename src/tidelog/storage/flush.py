"""The durability order, written down once.

What is acknowledged must survive a power cut, so before the log end counts as flushed, in this order:

1. small files that replace older ones (leader epochs) are in place, and the partition's metadata is synced,
2. the content of every file written since the last flush is synced: rolled segments, their indexes, producer
   snapshots, and the active segment last,
3. the names of new files are synced (the partition's directory), so that what was synced can be found again,
4. the name of the directory itself is synced (the data directory), if the partition is new.

A `FlushTicket` is taken on the event loop, does its blocking work in any thread, and is handed back on the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, format_epochs, format_partition_metadata
from tidelog.storage.fs import File, Filesystem, remove_tree, replace_file, write_fully

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.data_dir import DataDir
    from tidelog.storage.epochs import Epochs
    from tidelog.storage.segment import Segment
    from tidelog.types import TopicId


class Replacement(NamedTuple):
    path: str
    data: bytes


class FlushTicket:
    """What one flush has to do. Only `sync` runs outside the event loop."""

    __slots__ = (
        "_directories",
        "_files",
        "_fs",
        "_paths",
        "_replacements",
        "end_offset",
        "error",
        "mark",
        "parent_mark",
        "synced",
        "truncations",
    )

    def __init__(
        self,
        fs: Filesystem,
        *,
        end_offset: int,
        truncations: int,
        mark: int,
        parent_mark: int,
        replacements: Sequence[Replacement],
        paths: Sequence[str],
        files: Sequence[File],
        directories: Sequence[str],
    ) -> None:
        self._fs = fs
        self.end_offset = end_offset
        self.truncations = truncations
        self.mark = mark
        self.parent_mark = parent_mark
        self._replacements = replacements
        self._paths = paths
        self._files = files
        self._directories = directories
        """The partition's before its parent's."""
        self.synced = False
        self.error: OSError | None = None

    def sync(self) -> None:
        """Blocking. A failure is kept for `finish`: after one, nobody knows what is on the disk."""
        assert not self.synced, "a ticket is good for one flush"
        try:
            for each in self._replacements:
                replace_file(self._fs, each.path, each.data)
            for path in self._paths:
                self._fs.open(path).sync()
            for file in self._files:
                file.sync()
            for directory in self._directories:
                self._fs.sync_dir(directory)
        except OSError as error:
            self.error = error
        else:
            self.synced = True


class Durability:
    """How far one partition is durable, and what a flush still has to sync apart from the active segment's content.

    Every change has a number, so that a flush settles what it saw and not what came after it began.
    """

    __slots__ = (
        "_directory",
        "_files",
        "_fs",
        "_mark",
        "_metadata_synced",
        "_names_mark",
        "_parent",
        "_parent_mark",
        "_ticket",
        "_truncations",
        "dirty_since_ms",
        "flushed_offset",
    )

    def __init__(self, fs: Filesystem, directory: str, parent: DataDir, flushed_offset: int) -> None:
        self._fs = fs
        self._directory = directory
        self._parent = parent
        self._parent_mark = 0
        self._metadata_synced = True
        self._mark = 0
        self._names_mark = 0
        self._files: dict[File, int] = {}
        self._ticket: FlushTicket | None = None
        self._truncations = 0
        self.dirty_since_ms = -1
        self.flushed_offset = flushed_offset

    @property
    def flushing(self) -> bool:
        return self._ticket is not None

    @property
    def has_files(self) -> bool:
        return bool(self._files)

    def create_directory(self, topic_id: TopicId) -> None:
        """Make the partition's place. It is durable with the first flush, before anything in it is acknowledged."""
        self._fs.make_dir(self._directory)
        self._parent_mark = self._parent.name_changed()
        try:
            self.write_metadata(topic_id)
        except OSError:
            remove_tree(self._fs, self._directory)  # so that it can be tried again
            raise

    def write_metadata(self, topic_id: TopicId) -> None:
        """Say whose the directory is; durable with the next flush."""
        metadata = self._fs.open(f"{self._directory}/{PARTITION_METADATA}", create=True)
        write_fully(metadata, format_partition_metadata(topic_id), 0)
        self._metadata_synced = False
        self.add_name()

    def add_file(self, file: File) -> None:
        """`file` was written and must be synced. It stays open until then."""
        self._mark += 1
        self._files[file] = self._mark

    def add_name(self) -> None:
        """A name appeared in the partition's directory."""
        self._mark += 1
        self._names_mark = self._mark

    def truncated(self, end_offset: int) -> None:
        """The log was cut: a flush that is under way does not count for what comes in place of the lost part."""
        self._truncations += 1
        self.flushed_offset = min(self.flushed_offset, end_offset)

    def begin(self, end_offset: int, active: Segment, epochs: Epochs) -> FlushTicket | None:
        assert self._ticket is None, "one flush at a time: finish the other first"
        behind = end_offset > self.flushed_offset
        if not (behind or self._files or self._names_mark or epochs.changed):
            return None
        files = [*self._files, active.file.get()] if behind else [*self._files]
        replacements = []
        if epochs.changed:
            replacements.append(Replacement(f"{self._directory}/{LEADER_EPOCHS}", format_epochs(epochs.starts)))
            epochs.changed = False
        directories = [self._directory] if self._names_mark else []
        parent_mark = self._parent.names_synced
        if self._parent_mark > parent_mark:
            parent_mark = self._parent.names_changed
            directories.append(self._parent.path)
        self._ticket = FlushTicket(
            self._fs,
            end_offset=end_offset,
            truncations=self._truncations,
            mark=self._mark,
            parent_mark=parent_mark,
            replacements=replacements,
            paths=() if self._metadata_synced else (f"{self._directory}/{PARTITION_METADATA}",),
            files=files,
            directories=directories,
        )
        self.dirty_since_ms = -1
        return self._ticket

    def forget_ticket(self, epochs: Epochs) -> None:
        """Nobody will bring it back: the next flush does its work again."""
        if self._ticket is not None:
            self._ticket = None
            epochs.changed = True

    def finish(self, ticket: FlushTicket, epochs: Epochs) -> None:
        """Take the ticket back. What it covered counts as flushed, unless it failed or the log was cut meanwhile."""
        assert ticket is self._ticket, "this ticket was not given out here"
        self._ticket = None
        if not ticket.synced:
            epochs.changed = True
            return
        self._files = {file: number for file, number in self._files.items() if number > ticket.mark}
        if self._names_mark <= ticket.mark:
            self._names_mark = 0
        self._parent.settle(ticket.parent_mark)
        self._metadata_synced = True
        if ticket.truncations == self._truncations:
            assert ticket.end_offset >= self.flushed_offset
            self.flushed_offset = ticket.end_offset
