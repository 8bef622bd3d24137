"""`<offset>.snapshot`: the producers of a partition as they were before `offset`, in Kafka's format, version 1.

Kafka writes one entry per producer and so loses four of the five batches of the window at a restart. A repeat that
arrives after it would be refused or, after a gap, stored twice. So we write up to five entries of the same producer,
oldest first: Kafka's reader keeps the last one, which is what it would have written, and ours keeps them all.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.records.header import MAX_SEQUENCE, NO_SEQUENCE
from tidelog.storage.producers import WINDOW, Producer, Producers, SeenBatch
from tidelog.storage.transactions import NO_OFFSET

SUFFIX = ".snapshot"
VERSION = 1

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class SnapshotDamaged(ValueError):  # noqa: N818 - named for what was found
    """The bytes are not a snapshot that was written completely."""


class _Entry(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode(producers: Producers) -> bytes:
    entries = [_ENTRY.pack(*entry) for each, producer in producers for entry in _entries(each, producer)]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> Producers:
    if len(data) < _HEAD.size + _COUNT.size:
        raise SnapshotDamaged(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != VERSION:
        raise SnapshotDamaged(f"version {version}, expected {VERSION}")
    if crc32c(body) != crc:
        raise SnapshotDamaged("the checksum does not match")
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if count < 0 or len(entries) != count * _ENTRY.size:
        raise SnapshotDamaged(f"{len(entries)} bytes for {count} entries")
    found: dict[int, Producer] = {}
    for fields in _ENTRY.iter_unpack(entries):
        _add(found, _Entry(*fields))
    producers = Producers()
    for producer_id, producer in found.items():
        producers.restore(producer_id, producer)
    return producers


def _entries(producer_id: int, producer: Producer) -> list[_Entry]:
    common = (producer.coordinator_epoch, producer.transaction_first_offset)
    if not producer.window:
        return [_Entry(producer_id, producer.epoch, NO_SEQUENCE, NO_OFFSET, 0, producer.last_seen_ms, *common)]
    return [
        _Entry(
            producer_id,
            producer.epoch,
            seen.last_sequence,
            seen.last_offset,
            seen.last_offset - seen.first_offset,
            seen.timestamp_ms,
            *common,
        )
        for seen in producer.window
    ]


def _add(found: dict[int, Producer], entry: _Entry) -> None:
    producer = found.get(entry.producer_id)
    if producer is None or producer.epoch != entry.epoch:
        producer = found[entry.producer_id] = Producer(entry.epoch)
    producer.coordinator_epoch = entry.coordinator_epoch
    producer.transaction_first_offset = entry.transaction_first_offset
    producer.last_seen_ms = entry.timestamp_ms
    if entry.last_offset != NO_OFFSET:
        first_sequence = (entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE
        first_offset = entry.last_offset - entry.offset_delta
        seen = SeenBatch(first_sequence, entry.last_sequence, first_offset, entry.last_offset, entry.timestamp_ms)
        producer.window = (*producer.window[1 - WINDOW :], seen)
