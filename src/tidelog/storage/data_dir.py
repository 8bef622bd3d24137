"""One of the directories in `log.dirs`: its lock, its identity, its partitions' names, its checkpoints."""

from __future__ import annotations

import logging
import re
import secrets
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.checkpoint_files import CheckpointFiles
from tidelog.storage.checkpoints import (
    LOCK,
    META_PROPERTIES,
    CheckpointDamaged,
    format_properties,
    parse_properties,
)
from tidelog.storage.errors import StoreError
from tidelog.storage.fs import make_dirs, read_file, remove_tree, replace_file
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.storage.fs import Filesystem, Lock

_log = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
"""Of a partition that the cluster has on other brokers: nobody asked to delete it, so it is kept for a while."""
_NAME_CHARS_MAX = 255
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_META_BYTES_MAX = 64 << 10


class Meta(NamedTuple):
    broker_id: int
    cluster_id: str


class DataDir:
    """Counts the names that come and go in it, so that one sync of the directory serves all partitions made before."""

    __slots__ = ("_fs", "_lock", "checkpoints", "names_changed", "names_synced", "partitions", "path", "strays")

    def __init__(self, fs: Filesystem, path: str) -> None:
        self._fs = fs
        self._lock: Lock | None = None
        self.path = path
        self.checkpoints = CheckpointFiles(fs, path)
        self.partitions = 0
        self.strays: list[str] = []
        """Paths of those that were found."""
        self.names_changed = 0
        self.names_synced = 0

    # -- whose it is --------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Make it ours until `unlock`. The directory is made if it is not there."""
        try:
            make_dirs(self._fs, self.path)
            self._lock = self._fs.lock(f"{self.path}/{LOCK}")
        except BlockingIOError:
            raise StoreError(
                f"{self.path} is in use by another broker: stop that one or give this one another log.dirs"
            ) from None
        except OSError as error:
            raise StoreError(f"cannot use {self.path} as a log directory: {error}") from error

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def read_meta(self) -> Meta | None:
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            values = parse_properties(read_file(self._fs, path, _META_BYTES_MAX))
            return Meta(int(values["broker.id"]), values["cluster.id"])
        except FileNotFoundError:
            return None
        except (CheckpointDamaged, KeyError, ValueError) as error:
            raise StoreError(
                f"{path} cannot be read ({error!r}): restore broker.id and cluster.id in it, or remove the file if "
                "this directory belongs to this broker"
            ) from error

    def claim(self, meta: Meta) -> None:
        """Write down whose directory this is; refuse another broker's or another cluster's."""
        found = self.read_meta()
        path = f"{self.path}/{META_PROPERTIES}"
        if found is None:
            values = {"version": "0", "broker.id": str(meta.broker_id), "cluster.id": meta.cluster_id}
            replace_file(self._fs, path, format_properties(values))
        elif found != meta:
            raise StoreError(
                f"{path} says broker.id={found.broker_id} cluster.id={found.cluster_id}, but this broker is "
                f"{meta.broker_id} of cluster {meta.cluster_id}: correct broker.id or log.dirs"
            )

    # -- what is in it ------------------------------------------------------------------------------------------

    def find_partitions(self) -> list[TopicPartition]:
        """The partitions that lie here. Remains of deleted ones are removed; what is foreign is left alone."""
        found: list[TopicPartition] = []
        for entry in self._fs.scan(self.path):
            if not entry.is_dir:
                continue
            if entry.name.endswith(DELETE_SUFFIX):
                remove_tree(self._fs, f"{self.path}/{entry.name}")
            elif entry.name.endswith(STRAY_SUFFIX):
                self.strays.append(f"{self.path}/{entry.name}")
            elif (topic_partition := parse_directory(entry.name)) is not None:
                found.append(topic_partition)
            else:
                _log.warning("%s/%s is not a partition's directory and is left alone", self.path, entry.name)
        self.partitions = len(found)
        return sorted(found)

    def name_changed(self) -> int:
        self.names_changed += 1
        return self.names_changed

    def settle(self, mark: int) -> None:
        """Every name up to the `mark`-th change is durable."""
        assert mark <= self.names_changed
        self.names_synced = max(self.names_synced, mark)

    def sync_names(self) -> None:
        if self.names_synced < self.names_changed:
            mark = self.names_changed
            self._fs.sync_dir(self.path)
            self.settle(mark)

    def rename_for_deletion(self, topic_partition: TopicPartition, kind: str = DELETE_SUFFIX) -> str:
        """Give the directory a name under which nobody looks for it, and return its path."""
        suffix = f".{secrets.token_hex(16)}{kind}"
        doomed = f"{self.path}/{str(topic_partition)[: _NAME_CHARS_MAX - len(suffix)]}{suffix}"
        self._fs.rename(f"{self.path}/{topic_partition}", doomed)
        self.name_changed()
        self.partitions -= 1
        return doomed


def parse_directory(name: str) -> TopicPartition | None:
    match = _PARTITION.match(name)
    if match is None or match["topic"] in {".", ".."}:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))
