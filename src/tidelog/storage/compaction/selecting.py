"""Which records of a batch survive. PURE, and the other hot loop of compaction.

A record goes if a newer one of its key is in the map, if it has no key, or if it is a tombstone whose time is over.
There are two ways to the same answer. `by_key` looks every key up. `by_offset` is for batches that were mapped as a
whole: there, the survivors' offsets are known beforehand, and a batch without any need not even be inflated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.records.varint import INT32_BYTES_MAX, BadVarint, read_raw
from tidelog.storage.compaction.offset_map import LONG_KEY_RAW, digest, misshapen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.records.header import BatchHeader

_NULL_RAW = 1
"""The length of what is not there: -1, before the zig-zag is undone."""


class Selection(NamedTuple):
    """`runs` are the stretches of the inflated records that stay, `kept` says how many records they hold."""

    runs: list[tuple[int, int]]
    kept: int
    tombstones: bool
    """Whether one of those that stay marks its key as deleted."""


def by_key(
    header: BatchHeader, body: bytes, offsets: Mapping[bytes, int], mapped_end: int, *, drop_tombstones: bool
) -> Selection:
    """Records at or after `mapped_end`, up to where the map goes, stay whatever they are."""
    size, base_offset, limit = len(body), header.base_offset, header.last_offset_delta << 1
    runs: list[tuple[int, int]] = []
    position = run_start = kept = 0
    previous = -1
    tombstones = False
    newest_of = offsets.get
    try:
        for _ in range(header.record_count):
            start = position
            end, delta, key_raw, position = _frame(body, position)
            if end > size or not previous < delta <= limit:
                raise misshapen(header)
            previous = delta
            offset = base_offset + (delta >> 1)
            if key_raw & 1:
                keep = offset >= mapped_end
            else:
                value_at = position + (key_raw >> 1)
                if value_at >= end:
                    raise misshapen(header)
                key = body[position:value_at]
                keep = newest_of(key if key_raw <= LONG_KEY_RAW else digest(key), -1) <= offset
                if keep and offset < mapped_end and _is_null(body, value_at):
                    keep = not drop_tombstones
                    tombstones = tombstones or keep
            if keep:
                kept += 1
            else:
                if run_start < start:
                    runs.append((run_start, start))
                run_start = end
            position = end
    except (IndexError, BadVarint):
        raise misshapen(header) from None
    if position != size:
        raise misshapen(header)
    if run_start < size:
        runs.append((run_start, size))
    return Selection(runs, kept, tombstones)


def by_offset(header: BatchHeader, body: bytes, survivors: Sequence[int], *, drop_tombstones: bool) -> Selection:
    """`survivors` are the offsets of this batch's records that are the newest of their key, rising; at least one."""
    base_offset = header.base_offset
    runs: list[tuple[int, int]] = []
    position = run_start = kept = seen = 0
    tombstones = False
    wanted = survivors[0]
    try:
        for _ in range(header.record_count):
            start = position
            end, delta, key_raw, position = _frame(body, position)
            wanted_here = keep = base_offset + (delta >> 1) == wanted
            if keep and _is_null(body, position + (key_raw >> 1)):
                keep = not drop_tombstones
                tombstones = tombstones or keep
            if keep:
                kept += 1
            else:
                if run_start < start:
                    runs.append((run_start, start))
                run_start = end
            if wanted_here:
                seen += 1
                if seen == len(survivors):
                    if run_start < end:
                        runs.append((run_start, end))
                    return Selection(runs, kept, tombstones)
                wanted = survivors[seen]
            position = end
    except (IndexError, BadVarint):
        pass
    raise misshapen(header)


def _frame(body: bytes, position: int) -> tuple[int, int, int, int]:
    """Where the record at `position` ends, its raw offset delta, its key's raw length, and where the key starts."""
    raw = body[position]
    position += 1
    if raw >= 0x80:
        byte = body[position]
        position += 1
        if byte < 0x80:
            raw = raw & 0x7F | byte << 7
        else:
            raw, position = read_raw(body, position - 2, INT32_BYTES_MAX)
    if raw & 1:
        raise BadVarint("a length below zero")
    end = position + (raw >> 1)
    position += 1  # attributes, of which none is in use
    while body[position] >= 0x80:  # the timestamp
        position += 1
    delta = body[position + 1]
    position += 2
    if delta >= 0x80:
        byte = body[position]
        position += 1
        if byte < 0x80:
            delta = delta & 0x7F | byte << 7
        else:
            delta, position = read_raw(body, position - 2, INT32_BYTES_MAX)
    if delta & 1:
        raise BadVarint("an offset before the batch's first")
    key_raw = body[position]
    position += 1
    if key_raw >= 0x80:
        key_raw, position = read_raw(body, position - 1, INT32_BYTES_MAX)
    return end, delta, key_raw, position


def _is_null(body: bytes, position: int) -> bool:
    raw = body[position]
    if raw < 0x80:
        return raw == _NULL_RAW
    return read_raw(body, position, INT32_BYTES_MAX)[0] == _NULL_RAW
