"""What the tests of transactions in the log share: their batches, markers, and a model to hold both against."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from storage_cases import ALL, NOW_MS, append, batch_of

from tidelog.records.control import Marker, MarkerType, read_marker
from tidelog.records.record import Record, iter_batches, iter_records
from tidelog.storage.aborted import AbortedTransaction
from tidelog.storage.transactions import NO_OFFSET
from tidelog.storage.verification import TRUSTED, Guard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.log import Appended, Log
    from tidelog.storage.producers import Producers

COMMIT, ABORT = Marker(MarkerType.COMMIT, 0), Marker(MarkerType.ABORT, 0)


def write(
    log: Log,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    guard: Guard | None = TRUSTED,
    size: int = 0,
    transactional: bool = True,
) -> Appended:
    values = [b"%d/%d" % (producer_id, sequence + at) + bytes(size) for at in range(count)]
    batch = batch_of(values, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional)
    return append(log, batch, guard=guard)


def end(log: Log, producer_id: int, marker: Marker = COMMIT, *, epoch: int = 0, version: int = 0) -> int:
    """Where the marker lies."""
    return log.append_marker(marker, producer_id, epoch, 0, NOW_MS, transaction_version=version).base_offset


class Stored(NamedTuple):
    """A batch of a log, as far as transactions care. `marker` is None for data."""

    base_offset: int
    next_offset: int
    producer_id: int
    epoch: int
    transactional: bool
    marker: Marker | None


class Ended(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


class Outcome(NamedTuple):
    """What a list of batches says, by the definitions."""

    epochs: dict[int, int]
    coordinator_epochs: dict[int, int]
    open: dict[int, int]
    ended: list[Ended]

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = [each.first_offset for each in self.ended if each.marker_offset >= high_watermark]
        return min([*unstable, *self.open.values(), high_watermark])

    def aborted(self, from_offset: int, upto: int) -> list[AbortedTransaction]:
        found = [
            AbortedTransaction(each.producer_id, each.first_offset)
            for each in self.ended
            if each.aborted and each.marker_offset >= from_offset and each.first_offset < upto
        ]
        return sorted(found, key=lambda each: each.first_offset)


def outcome(batches: Sequence[Stored]) -> Outcome:
    epochs: dict[int, int] = {}
    coordinator_epochs: dict[int, int] = {}
    open_: dict[int, int] = {}
    ended: list[Ended] = []
    for each in batches:
        if each.producer_id < 0:
            continue
        epochs[each.producer_id] = each.epoch
        coordinator_epochs.setdefault(each.producer_id, -1)
        if each.marker is not None:
            coordinator_epochs[each.producer_id] = each.marker.coordinator_epoch
            if each.producer_id in open_:
                first = open_.pop(each.producer_id)
                ended.append(Ended(each.producer_id, first, each.base_offset, not each.marker.committed))
        elif each.transactional:
            open_.setdefault(each.producer_id, each.base_offset)
    return Outcome(epochs, coordinator_epochs, open_, ended)


def stored(log: Log) -> list[Stored]:
    """What the log holds."""
    found: list[Stored] = []
    at = log.log_start_offset
    while (piece := log.read(at, ALL, ALL, True)) is not None:
        for header, batch in iter_batches(piece.slice.read()):
            found.append(
                Stored(
                    header.base_offset,
                    header.next_offset,
                    header.producer_id,
                    header.producer_epoch,
                    header.transactional,
                    read_marker(batch),
                )
            )
        at = piece.next_offset
    return found


def read_committed(log: Log, upto: int, chunk_bytes: int = ALL, from_offset: int | None = None) -> list[Record]:
    """What a read_committed consumer hands on, as Kafka's clients go about it, fetch by fetch."""
    at = log.log_start_offset if from_offset is None else from_offset
    start = at
    found: list[Record] = []
    while (piece := log.read(at, chunk_bytes, upto, True)) is not None:
        coming = deque(log.aborted_transactions(at, piece.next_offset))
        assert sorted(coming, key=lambda each: each.first_offset) == list(coming)
        aborted: set[int] = set()
        for header, batch in iter_batches(piece.slice.read()):
            while coming and coming[0].first_offset <= header.last_offset:
                aborted.add(coming.popleft().producer_id)
            if header.control:
                if (marker := read_marker(batch)) is not None and not marker.committed:
                    aborted.discard(header.producer_id)
            elif not (header.transactional and header.producer_id in aborted):
                found += [record for record in iter_records(batch) if record.offset >= start]
        at = piece.next_offset
    return found


def remembered(producers: Producers) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Epochs, coordinators' epochs, and the first offsets of open transactions."""
    return (
        {each: producer.epoch for each, producer in producers},
        {each: producer.coordinator_epoch for each, producer in producers},
        {
            each: producer.transaction_first_offset
            for each, producer in producers
            if producer.transaction_first_offset != NO_OFFSET
        },
    )
