"""Reads the files of a log directory as they lie on disk, and says what is wrong with them. Changes nothing.

A broker may be writing meanwhile: what it is about to finish at the end of an active segment can look like damage.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.errors import BrokerError
from tidelog.records.compression import Codec
from tidelog.records.record import iter_records
from tidelog.storage import aborted_index, offset_index, snapshots, time_index, walk
from tidelog.storage.fs import RealFile, read_fully

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.records.header import BatchHeader
    from tidelog.records.record import Record

LOG_SUFFIX = ".log"
SUFFIXES = (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX, aborted_index.SUFFIX, snapshots.SUFFIX)

_INDEX_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_SNAPSHOT_BYTES_MAX = 64 << 20


@dataclass
class Finding:
    """One line of a dump: what lies at a position, and what is wrong with it, if anything."""

    kind: str
    position: int
    fields: dict[str, Any] = field(default_factory=dict)
    damage: str | None = None
    records: list[Record] = field(default_factory=list)


def open_readonly(path: Path) -> RealFile:
    """Not through the broker's file system, which opens to write and so would need the right to."""
    return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def base_offset_of(path: Path) -> int | None:
    """The offset in a file's name."""
    stem = path.name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else None


def find_files(path: Path) -> list[Path]:
    """The files to dump in a directory, by segment; partitions below it included."""
    return sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and base_offset_of(each) is not None)


def dump(path: Path, *, with_records: bool) -> Iterator[Finding]:
    if path.suffix == LOG_SUFFIX:
        return dump_log(path, with_records=with_records)
    if path.suffix == offset_index.SUFFIX:
        return dump_offset_index(path)
    if path.suffix == time_index.SUFFIX:
        return dump_time_index(path)
    if path.suffix == aborted_index.SUFFIX:
        return dump_aborted_index(path)
    return dump_snapshot(path)


def dump_log(path: Path, *, with_records: bool) -> Iterator[Finding]:
    """Every batch, with its checksum verified; ends at the first place where no batch can be."""
    file = open_readonly(path)
    try:
        for position, header, crc_holds in walk.checked(file, 0, file.size(), base_offset_of(path) or 0):
            finding = Finding("batch", position, _batch_fields(header))
            if not crc_holds:
                finding.damage = "the checksum does not match: the batch's bytes changed after it was written"
            elif with_records:
                _add_records(finding, read_fully(file, position, header.size))
            yield finding
    except walk.Damage as damage:
        yield Finding("damage", damage.position, damage=damage.reason)


def _add_records(finding: Finding, batch: bytes) -> None:
    try:
        finding.records.extend(iter_records(batch))
    except BrokerError as error:
        finding.damage = error.message


def _batch_fields(header: BatchHeader) -> dict[str, Any]:
    codec = Codec(header.codec).name.lower() if header.codec in Codec._value2member_map_ else f"codec {header.codec}"
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": codec,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "log_append_time": header.log_append_time,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.transactional,
        "control": header.control,
        "crc": header.crc,
    }


def dump_offset_index(path: Path) -> Iterator[Finding]:
    """Every entry, held against the log beside it if there is one."""
    base = base_offset_of(path) or 0
    log = path.with_suffix(LOG_SUFFIX)
    log_file = open_readonly(log) if log.exists() else None
    before = (-1, -1)
    for position, (relative, log_position) in _entries(path, _INDEX_ENTRY):
        offset = base + relative
        finding = Finding("entry", position, {"offset": offset, "position": log_position})
        if (offset, log_position) <= before or offset <= before[0]:
            finding.damage = "entries must rise"
        elif log_file is not None:
            finding.damage = _index_damage(log_file, offset, log_position)
        before = (offset, log_position)
        yield finding
    yield from _leftover(path, _INDEX_ENTRY)


def _index_damage(log: RealFile, offset: int, position: int) -> str | None:
    if position < 0:
        return "it points before the log"
    try:
        place = walk.place_at(log, position, log.size())
    except walk.Damage as damage:
        return f"it points into the log where no batch begins ({damage.reason})"
    if place.last_offset != offset:
        return f"the batch there ends with offset {place.last_offset}"
    return None


def dump_time_index(path: Path) -> Iterator[Finding]:
    base = base_offset_of(path) or 0
    before = (-1, -1)
    for position, (timestamp, relative) in _entries(path, _TIME_ENTRY):
        entry = (timestamp, base + relative)
        finding = Finding("entry", position, {"timestamp": timestamp, "offset": entry[1]})
        if entry <= before or entry[1] < before[1]:
            finding.damage = "entries must rise"
        before = entry
        yield finding
    yield from _leftover(path, _TIME_ENTRY)


def dump_aborted_index(path: Path) -> Iterator[Finding]:
    """The transactions that were aborted in the segment; ends at the first entry that makes no sense."""
    data = path.read_bytes()
    position = 0
    try:
        for entry in aborted_index.unpack(data):
            yield Finding("aborted", position, entry._asdict())
            position += aborted_index.ENTRY_SIZE
    except aborted_index.AbortedIndexDamaged as damage:
        yield Finding("damage", position, damage=str(damage))


def _entries(path: Path, entry: Struct) -> Iterator[tuple[int, tuple[int, int]]]:
    """Kafka fills an active segment's index with zeros up to its full size: they are no entries."""
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    end = len(data[:whole].rstrip(b"\0"))
    end += -end % entry.size
    for position in range(0, end, entry.size):
        first, second = entry.unpack_from(data, position)
        yield position, (first, second)


def _leftover(path: Path, entry: Struct) -> Iterator[Finding]:
    size = path.stat().st_size
    if size % entry.size:
        yield Finding("damage", size - size % entry.size, damage=f"{size % entry.size} bytes are no whole entry")


def dump_snapshot(path: Path) -> Iterator[Finding]:
    """The producers that the partition remembered, with the batches it knew of each."""
    if path.stat().st_size > _SNAPSHOT_BYTES_MAX:
        yield Finding("damage", 0, damage=f"larger than {_SNAPSHOT_BYTES_MAX} bytes: this is no producer snapshot")
        return
    try:
        producers = snapshots.decode(path.read_bytes())
    except snapshots.SnapshotDamaged as error:
        yield Finding("damage", 0, damage=str(error))
        return
    for producer_id, producer in producers:
        last = producer.window[-1] if producer.window else None
        yield Finding(
            "producer",
            0,
            {
                "producer_id": producer_id,
                "epoch": producer.epoch,
                "batches": len(producer.window),
                "last_sequence": producer.last_sequence,
                "last_offset": last.last_offset if last is not None else -1,
                "transaction_first_offset": producer.transaction_first_offset,
                "coordinator_epoch": producer.coordinator_epoch,
                "timestamp": producer.last_seen_ms,
            },
        )
