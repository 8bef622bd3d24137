"""Putting a cleaned segment in the place of those it was made of, so that a crash leaves either.

`replace`, on the event loop, is nothing but renames, in this order (the content is synced long before):

1. `.cleaned` becomes `.swap`, the log last: from here on the new segment counts,
2. the old segments' files become `.deleted`,
3. `.swap` loses its suffix, the log last: from here on nothing tells that there was a swap.

`finish_interrupted`, when a partition is opened, does again what may not have been done since step 1: a `.log.swap`
says by its offsets which segments it replaces, since a cleaned segment ends with the last batch of the last of them.
Should the disk have damaged it, the old segments stay as long as the first of them, which goes first, is there.
Whatever is still `.cleaned` is removed like all leftovers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage import aborted_index
from tidelog.storage.compaction.names import CLEANED, SUFFIXES, SWAP
from tidelog.storage.content import stem_of
from tidelog.storage.fs import remove_if_there
from tidelog.storage.segment import LOG_SUFFIX, SegmentFiles, remove_files
from tidelog.storage.walk import Damage, places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.compaction.job import Cleaned
    from tidelog.storage.fs import Entry, Filesystem
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

_log = logging.getLogger(__name__)

_SWAPPED_LOG = LOG_SUFFIX + SWAP


def replace(log: Log, sources: Sequence[Segment], cleaned: Cleaned) -> None:
    """`sources` follow each other in the log and are what `cleaned` was made of. Readers of the old files go on."""
    fs, stem = log.room.fs, sources[0].stem
    remove_at_ms = log.room.clock.now_ms() + log.config.file_delete_delay_ms
    for suffix in SUFFIXES:
        fs.rename(stem + suffix + CLEANED, stem + suffix + SWAP)
    for source in sources:
        log.doomed.doom(source, remove_at_ms, keep_snapshot=True)
    for suffix in SUFFIXES:
        fs.rename(stem + suffix + SWAP, stem + suffix)
    log.segments.replace(
        sources,
        SegmentFiles(
            cleaned.base_offset,
            cleaned.log_bytes,
            cleaned.index_bytes,
            cleaned.time_index_bytes,
            sources[-1].modified_ms,
            cleaned.aborted_bytes,
        ),
    )
    for source in sources:
        log.aborted.forget(source.base_offset)
    log.aborted.adopt(SegmentFiles(cleaned.base_offset, cleaned.log_bytes, aborted_bytes=cleaned.aborted_bytes))
    log.durability.add_name()


def finish_interrupted(fs: Filesystem, directory: str, entries: Sequence[Entry]) -> bool:
    """Bring swaps that a crash interrupted to their end. Whether there were any."""
    names = {each.name for each in entries if not each.is_dir}
    swapped = sorted(name for name in names if name.endswith(_SWAPPED_LOG) and name.partition(".")[0].isdigit())
    for name in swapped:
        base_offset = int(name.partition(".")[0])
        end_offset, damage = _end_offset(fs, directory, base_offset)
        stem = stem_of(directory, base_offset)
        if damage is not None:
            _log.error("%s%s is damaged %s", stem, _SWAPPED_LOG, damage)
            if fs.exists(stem + LOG_SUFFIX):
                remove_if_there(fs, stem + _SWAPPED_LOG)  # its indexes go with all leftovers
                continue
        _log.info("%s: putting the cleaned segment %d to %d in place", directory, base_offset, end_offset - 1)
        for old in _segments_within(names, base_offset, end_offset):
            remove_files(fs, stem_of(directory, old))
        for suffix in SUFFIXES:
            if fs.exists(stem + suffix + SWAP):
                fs.rename(stem + suffix + SWAP, stem + suffix)
            elif suffix != aborted_index.SUFFIX:  # which can only have been put in place already
                remove_if_there(fs, stem + suffix)  # an index of the old segment; the new one's is built again
    if swapped:
        fs.sync_dir(directory)
    return bool(swapped)


def _segments_within(names: set[str], base_offset: int, end_offset: int) -> list[int]:
    """The old segments that the one from `base_offset` to `end_offset` replaces, apart from that of the same name."""
    bases = (int(name.removesuffix(LOG_SUFFIX)) for name in names if name.removesuffix(LOG_SUFFIX).isdigit())
    return sorted(each for each in bases if base_offset < each < end_offset)


def _end_offset(fs: Filesystem, directory: str, base_offset: int) -> tuple[int, Damage | None]:
    """Where the swapped segment ends, and what ended it if that was not its end."""
    file = fs.open(stem_of(directory, base_offset) + _SWAPPED_LOG)
    end_offset = base_offset
    try:
        for place in places(file, 0, file.size()):
            end_offset = place.last_offset + 1
    except Damage as damage:
        return end_offset, damage
    return end_offset, None
