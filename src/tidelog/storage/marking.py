"""Writing a marker: the control batch by which a coordinator ends a producer's transaction in a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.records.control import build_marker
from tidelog.records.header import peek
from tidelog.types import LeaderEpoch, Offset, ProducerId

if TYPE_CHECKING:
    from tidelog.records.control import Marker
    from tidelog.storage.log import Log


def append(log: Log, marker: Marker, producer_id: int, producer_epoch: int, leader_epoch: int, now_ms: int) -> int:
    """Its offset. Unchecked: `Producers.check_marker` has been asked."""
    offset = log.log_end_offset
    batch = memoryview(
        build_marker(
            marker,
            producer_id=ProducerId(producer_id),
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
            offset=Offset(offset),
            leader_epoch=LeaderEpoch(leader_epoch),
        )
    )
    segment = log.segment_for(len(batch), offset, offset, now_ms, now_ms)
    position = log.write(segment, batch, len(batch))
    segment.note(position, len(batch), offset, now_ms, log.config.index_interval_bytes)
    log.epochs.assign(leader_epoch, offset)
    completed = log.producers.record(peek(batch), offset, now_ms, marker)
    if completed is not None:
        log.aborted.ended(segment.base_offset, completed, log.producers.transactions)
    log.wrote(segment, offset + 1, now_ms)
    return offset
