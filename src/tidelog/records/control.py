"""Control batches: one record that speaks to consumers of a transaction, not to the application.

A marker ends a transaction of one producer in one partition. Its key says commit or abort, its value which coordinator
decided. Readers skip kinds and fields they do not know, so that newer brokers can add some.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from tidelog.records.build import build_batch
from tidelog.records.header import Buffer, peek
from tidelog.records.record import CorruptRecords, Record, iter_records
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, ProducerId

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0
MARKER_BYTES: Final = 78
"""The size of every marker's batch."""


class MarkerType(IntEnum):
    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    type: MarkerType
    coordinator_epoch: int

    @property
    def committed(self) -> bool:
        return self.type == MarkerType.COMMIT


def marker_key(marker_type: MarkerType) -> bytes:
    return _KEY.pack(_VERSION, marker_type)


def marker_value(coordinator_epoch: int) -> bytes:
    return _VALUE.pack(_VERSION, coordinator_epoch)


def build_marker(
    marker: Marker,
    *,
    producer_id: ProducerId,
    producer_epoch: int,
    timestamp_ms: int,
    offset: Offset = Offset(0),  # noqa: B008 - a NewType is the plain number
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytearray:
    """A whole batch that ends the producer's transaction. It takes an offset but no sequence number."""
    record = Record(offset, timestamp_ms, marker_key(marker.type), marker_value(marker.coordinator_epoch))
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def parse_marker(key: Buffer | None, value: Buffer | None) -> Marker | None:
    """The marker that a control record holds; None for a kind of control record that is not known here."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecords("a control record needs a key that says its kind")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecords(f"a control record's key has version {version}")
    if kind not in _MARKER_TYPES:
        return None
    if value is None or len(value) < _VALUE.size:
        raise CorruptRecords("a transaction marker needs a value that says the coordinator's epoch")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecords(f"a transaction marker's value has version {version}")
    return Marker(MarkerType(kind), coordinator_epoch)


def read_marker(batch: Buffer) -> Marker | None:
    """The marker in a batch; None if it holds something else, or had its marker compacted away."""
    if not peek(batch).control:
        return None
    for record in iter_records(batch):
        return parse_marker(record.key, record.value)
    return None


_MARKER_TYPES: Final = frozenset(MarkerType)
