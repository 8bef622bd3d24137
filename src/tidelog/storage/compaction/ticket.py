"""Leave to clean a log: taken on the event loop, and good until the log is cut, closed or deleted.

The ticket carries the job for whoever does the work elsewhere. Segments may be deleted meanwhile, by retention: then
the groups they belonged to are not replaced any more, and the cleaning ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage import offset_index, time_index
from tidelog.storage.compaction.choosing import Cleanable, SegmentFacts, cleanable, must_roll
from tidelog.storage.compaction.job import CleaningJob, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

_NEVER_MS = 2**63 - 1


class CleaningTicket:
    __slots__ = ("_segments", "job")

    def __init__(self, job: CleaningJob, segments: dict[int, Segment]) -> None:
        self.job = job
        self._segments = segments

    def holds(self, log: Log) -> bool:
        """Whether the log is still what it was when the ticket was taken, but for what was replaced since."""
        return log.cleaning is self and self.sources(log, list(self._segments)) is not None

    def replaced(self, base_offsets: Sequence[int]) -> None:
        for each in base_offsets:
            del self._segments[each]

    def sources(self, log: Log, base_offsets: Sequence[int]) -> list[Segment] | None:
        """The segments of a group, if all are still in the log."""
        present = set(log.segments)
        found = [self._segments[each] for each in base_offsets]
        return found if all(each in present for each in found) else None


def look(log: Log, upto: int, now_ms: int) -> Cleanable:
    """What a cleaning of the log would find now; below `upto`, and only what is on disk and decided."""
    return cleanable(
        _facts(log),
        log.config,
        clean_offset=log.clean_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        upto=min(upto, log.flushed_offset, log.producers.transactions.first_unstable_offset),
        now_ms=now_ms,
    )


def roll_if_overdue(log: Log, now_ms: int) -> None:
    """Close the active segment once its first record must not stay uncleaned any longer."""
    active, config = log.segments.active, log.config
    if config.max_compaction_lag_ms < _NEVER_MS and must_roll(config, active.size, active.rolling_timestamp(), now_ms):
        log.roll(now_ms)


def take(log: Log, upto: int, now_ms: int, limits: Limits) -> CleaningTicket:
    """Begin a cleaning. Its results are accepted as long as `log.cleaning` is this ticket."""
    found, config = look(log, upto, now_ms), log.config
    facts = [each for each in _facts(log) if each.base_offset < found.upper]
    job = CleaningJob(
        directory=log.directory,
        segments=facts,
        first_dirty=found.first_dirty,
        upper=found.upper,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        last_offset_of_producers={
            each: producer.window[-1].last_offset for each, producer in log.producers if producer.window
        },
        epoch_of_producers={each: producer.epoch for each, producer in log.producers if not producer.window},
        aborted=log.aborted_entries(facts[0].base_offset, found.upper) if facts else [],
        limits=limits,
    )
    bases = {each.base_offset for each in facts}
    ticket = CleaningTicket(job, {each.base_offset: each for each in log.segments if each.base_offset in bases})
    log.cleaning = ticket
    return ticket


def settle(log: Log, ticket: CleaningTicket, end_offset: int) -> None:
    """Every group is in place: the log is clean up to `end_offset`, unless it was cut meanwhile."""
    if log.cleaning is ticket:
        log.cleaning = None
        log.clean_offset = end_offset


def _facts(log: Log) -> list[SegmentFacts]:
    """Of the closed segments. Timestamps, which may have to be read, only where the settings ask for them."""
    config, active = log.config, log.segments.active
    by_age, by_delay = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < _NEVER_MS
    return [
        SegmentFacts(
            segment.base_offset,
            next_offset,
            segment.size,
            max(len(segment.index) * offset_index.ENTRY_SIZE, len(segment.times) * time_index.ENTRY_SIZE),
            segment.largest_timestamp() if by_age else -1,
            segment.rolling_timestamp() if by_delay else -1,
        )
        for segment, next_offset in log.segments.with_ends(log.log_end_offset)
        if segment is not active
    ]
