"""What a partition's directory holds: as listed, and as it stands once it has been opened or recovered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.storage.epochs import Epochs
from tidelog.storage.producers import Producers
from tidelog.storage.segment import LOG_SUFFIX, SegmentFiles
from tidelog.storage.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from tidelog.types import ZERO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from tidelog.storage.fs import Entry

DELETED_SUFFIX = ".deleted"
_LEFTOVERS = (DELETED_SUFFIX, ".tmp", ".cleaned", ".swap")
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


@dataclass(slots=True)
class Listing:
    """A directory's files by meaning."""

    segments: list[SegmentFiles]
    snapshot_offsets: list[int]
    leftovers: list[str]
    """Files that an interrupted deletion or replacement left behind, and indexes without a log: they can go."""
    names: set[str]


@dataclass(slots=True)
class Content:
    """All that a log needs to start working."""

    topic_id: TopicId = ZERO_TOPIC_ID
    segments: list[SegmentFiles] = field(default_factory=list)
    """From oldest to active; empty for a partition that was never written to."""
    snapshot_offsets: list[int] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    flushed_offset: int = 0
    producers: Producers = field(default_factory=Producers)
    epochs: Epochs = field(default_factory=Epochs)


def list_content(entries: list[Entry]) -> Listing:
    sizes = {entry.name: entry for entry in entries if not entry.is_dir}
    segments: list[SegmentFiles] = []
    snapshot_offsets: list[int] = []
    leftovers = [name for name in sizes if name.endswith(_LEFTOVERS)]
    for name, entry in sizes.items():
        stem, dot, suffix = name.partition(".")
        if not (len(stem) == 20 and stem.isascii() and stem.isdigit() and dot):
            continue
        if dot + suffix == LOG_SUFFIX:
            segments.append(_segment(sizes, stem, entry))
        elif dot + suffix == SNAPSHOT_SUFFIX:
            snapshot_offsets.append(int(stem))
        elif dot + suffix in _INDEX_SUFFIXES and stem + LOG_SUFFIX not in sizes:
            leftovers.append(name)
    segments.sort()
    return Listing(segments, sorted(snapshot_offsets), leftovers, set(sizes))


def _segment(sizes: dict[str, Entry], stem: str, log: Entry) -> SegmentFiles:
    index_bytes, time_index_bytes, aborted_bytes = (
        sizes[stem + suffix].size if stem + suffix in sizes else -1 for suffix in _INDEX_SUFFIXES
    )
    return SegmentFiles(int(stem), log.size, index_bytes, time_index_bytes, log.modified_ms, aborted_bytes)


def stem_of(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}"
