"""A log under appends, flushes, cuts, failing disks and power cuts, against a model that is a plain list.

What is checked after every crash: all that was flushed is there, byte for byte; whatever else came back was once
written at that very offset; and a producer that repeats itself is answered as before.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_cases import ALL, NOW_MS, TOPIC_ID, TP, Disk, append, batch_of, read_bytes

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.record import iter_batches
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log
    from tidelog.storage.store import LogStore

CONFIG = TopicConfig(
    segment_bytes=2000,
    index_interval_bytes=150,
    retention_bytes=4000,
    retention_ms=-1,
    file_delete_delay_ms=1000,
)


class Written(NamedTuple):
    """A batch as it lies in the log."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    producer_id: int
    sequence: int
    data: bytes


class LogMachine(RuleBasedStateMachine):
    fs: ForgetfulFilesystem
    disk: Disk
    store: LogStore
    log: Log

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.fs = ForgetfulFilesystem(seed, page_bytes=128)
        self.disk = Disk(self.fs, "/data")
        self.batches: list[Written] = []
        """What the log should hold, deleted records included."""
        self.ever: set[Written] = set()
        self.flushed = 0
        self.deleted_before = 0
        self.cut_since_flush = False
        self.leader_epoch = 0
        self.serial = 0
        self.disturbed = False
        self._open()
        self.store.create(TP, TOPIC_ID, CONFIG)
        self.log = self.store.logs[TP]

    # -- what happens to a log ----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), size=st.integers(0, 400))
    def append(self, count: int, size: int) -> None:
        self._append(count, size, -1, -1)

    @rule(producer_id=st.integers(1, 2), count=st.integers(1, 3))
    def produce(self, producer_id: int, count: int) -> None:
        self._append(count, 10, producer_id, self._next_sequence(producer_id))

    @rule(producer_id=st.integers(1, 2), back=st.integers(1, 5))
    def repeat(self, producer_id: int, back: int) -> None:
        """One of the last five batches of a producer arrives again."""
        own = [each for each in self.batches if each.producer_id == producer_id]
        if self.log.failure or len(own) < back:
            return
        first = own[-back]
        again = self._batch(first.next_offset - first.base_offset, 10, producer_id, first.sequence)
        end = self.log.log_end_offset
        answer = append(self.log, again, leader_epoch=self.leader_epoch)
        assert answer.duplicate
        assert (answer.base_offset, answer.last_offset) == (first.base_offset, first.next_offset - 1)
        assert self.log.log_end_offset == end

    @rule(producer_id=st.integers(1, 2), gap=st.integers(1, 1000))
    def skip(self, producer_id: int, gap: int) -> None:
        """A batch got lost on the way: what follows it is refused."""
        if self.log.failure or not any(each.producer_id == producer_id for each in self.batches):
            return
        batch = self._batch(1, 10, producer_id, self._next_sequence(producer_id) + gap)
        with pytest.raises(BrokerError) as refused:
            append(self.log, batch, leader_epoch=self.leader_epoch)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def elect(self) -> None:
        self.leader_epoch += 1

    @rule()
    def flush(self) -> None:
        if self._try(self.log.flush):
            self._flushed_to(self.log.log_end_offset)

    @rule(count=st.integers(1, 3))
    def append_during_flush(self, count: int) -> None:
        if self.log.failure:
            return
        end = self.log.log_end_offset
        ticket = self.log.begin_flush()
        for _ in range(count):
            self._append(1, 300, -1, -1)
        if ticket is not None:
            ticket.sync()
            if self._try(lambda: self.log.finish_flush(ticket)):
                self._flushed_to(end)

    @rule()
    def roll(self) -> None:
        self._try(lambda: self.log.roll(NOW_MS))

    @rule()
    def retain(self) -> None:
        self._try(lambda: self.log.apply_retention(NOW_MS, self.log.flushed_offset))

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        """Up to what is flushed, as the high watermark allows."""
        span = self.log.flushed_offset - self.log.log_start_offset
        target = self.log.log_start_offset + int(span * share)
        if span >= 0 and self._try(lambda: self.log.advance_log_start(target)):
            self.deleted_before = max(self.deleted_before, target)

    @rule(share=st.floats(0, 1), flush=st.booleans())
    def truncate(self, share: float, *, flush: bool) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        target = start + int((end - start) * share)
        if self.log.failure:
            return
        kept = [each for each in self.batches if each.next_offset <= target]
        kept_end = kept[-1].next_offset if kept else 0
        if kept_end <= start:
            kept = []  # only deleted records would be left: the log starts over, and forgets its producers
        self.flushed = min(self.flushed, kept_end)
        self.deleted_before = min(self.deleted_before, target)
        if not self._try(lambda: self.log.truncate_to(target)):
            # What a failed cut left can only be told by looking.
            self.disturbed = True
            return
        self.batches = kept
        self.cut_since_flush = True
        if flush:
            self.flush()

    @rule()
    def checkpoint(self) -> None:
        self._try(self.store.write_checkpoints)

    @rule()
    def maintain(self) -> None:
        self._try(lambda: self.store.run_maintenance(NOW_MS + 10_000))

    @rule(
        operation=st.sampled_from(["write", "sync", "sync_dir", "create", "rename", "truncate"]),
        error=st.sampled_from([errno.ENOSPC, errno.EIO]),
        after=st.integers(0, 5),
    )
    def disk_will_fail(self, operation: str, error: int, after: int) -> None:
        self.fs.fail(operation, error, after)

    @rule(forget=st.sampled_from(Forget))
    def crash(self, forget: Forget) -> None:
        self.fs.crash(forget)
        self._open()
        self._check_recovered()

    @precondition(lambda self: self.log.failure is None)
    @rule()
    def restart(self) -> None:
        end = self.log.log_end_offset
        self._try(self.store.close)
        clean = self.fs.exists("/data/.kafka_cleanshutdown")
        self.fs.crash(Forget.EVERYTHING)
        if clean:
            self._flushed_to(end)
        self._open()
        self._check_recovered()

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "log") and not self.log.failure:
            assert 0 <= self.log.log_start_offset <= self.log.log_end_offset
            assert self.log.flushed_offset <= self.log.log_end_offset

    @invariant()
    def everything_can_be_read(self) -> None:
        if not hasattr(self, "log") or self.log.failure or self.disturbed:
            return
        start = self.log.log_start_offset
        assert self._held() == [each for each in self.batches if each.next_offset > start]
        if self._held():
            assert self.log.log_end_offset == self.batches[-1].next_offset
        for each in self._held():
            assert self.log.epochs.at(max(start, each.base_offset)) == each.leader_epoch

    # -- inside -------------------------------------------------------------------------------------------------

    def _batch(self, count: int, size: int, producer_id: int, sequence: int) -> memoryview:
        self.serial += 1
        values = [b"%d/%d " % (self.serial, at) + b"x" * size for at in range(count)]
        epoch = 0 if producer_id >= 0 else -1
        return batch_of(values, producer_id=producer_id, epoch=epoch, sequence=sequence)

    def _append(self, count: int, size: int, producer_id: int, sequence: int) -> None:
        batch = self._batch(count, size, producer_id, sequence)
        before = self.log.log_end_offset
        try:
            done = append(self.log, batch, leader_epoch=self.leader_epoch)
        except BrokerError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017 - it may also succeed
            assert self.log.log_end_offset == before
            return
        assert not done.duplicate
        assert (done.base_offset, done.last_offset) == (before, before + count - 1)
        written = Written(before, before + count, self.leader_epoch, producer_id, sequence, bytes(batch))
        self.batches.append(written)
        self.ever.add(written)

    def _next_sequence(self, producer_id: int) -> int:
        own = [each for each in self.batches if each.producer_id == producer_id]
        return own[-1].sequence + own[-1].next_offset - own[-1].base_offset if own else 0

    def _flushed_to(self, offset: int) -> None:
        self.flushed = max(self.flushed, offset)
        self.cut_since_flush = False

    def _try(self, action: object) -> bool:
        """Whether it worked; a disk that was told to fail may have kept it from working."""
        assert callable(action)
        try:
            action()
        except BrokerError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017 - it may also succeed
            return False
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EIO)  # noqa: PT017 - as above
            return False
        return True

    def _open(self) -> None:
        self.store = self.disk.open_store(CONFIG)
        if TP in self.store.logs:
            self.log = self.store.logs[TP]
        elif hasattr(self, "log"):
            assert self.flushed == 0, "a partition with flushed records is gone"
            self.log = self.store.create(TP, TOPIC_ID, CONFIG)

    def _deleted_but_remembered(self, start: int) -> list[Written]:
        found = [
            Written(seen.first_offset, seen.last_offset + 1, -1, producer_id, seen.first_sequence, b"")
            for producer_id, producer in self.log.producers
            for seen in producer.window
            if seen.last_offset < start
        ]
        return sorted(found)

    def _held(self) -> list[Written]:
        """What the log gives to a reader, in small pieces."""
        found: list[Written] = []
        at = self.log.log_start_offset
        while data := read_bytes(self.log, at, 700):
            for header, batch in iter_batches(data):
                found.append(
                    Written(
                        header.base_offset,
                        header.next_offset,
                        header.leader_epoch,
                        header.producer_id,
                        header.base_sequence,
                        bytes(batch),
                    )
                )
            at = found[-1].next_offset
        assert not read_bytes(self.log, self.log.log_end_offset, ALL)
        return found

    def _check_recovered(self) -> None:
        assert self.log.failure is None
        assert self.log.log_end_offset >= self.flushed, "flushed records are gone"
        assert self.log.flushed_offset == self.log.log_end_offset
        assert self.log.log_start_offset >= self.deleted_before, "deleted records came back"
        held = self._held()
        start, end = self.log.log_start_offset, self.log.log_end_offset
        flushed = [each for each in self.batches if start < each.next_offset <= self.flushed]
        assert held[: len(flushed)] == flushed, "flushed records have changed"
        assert self.ever.issuperset(held), "records that nobody wrote there"
        if not (self.cut_since_flush or self.disturbed):
            assert held == [each for each in self.batches if start < each.next_offset <= end]
        if self.disturbed:
            # Whether a cut that failed half way took the deleted records' producers along, only the log can tell.
            before = self._deleted_but_remembered(start)
        else:
            before = [each for each in self.batches if each.next_offset <= start]
        self.batches = [*before, *held]
        self.flushed = end
        self.cut_since_flush = self.disturbed = False


LogMachine.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogModel = LogMachine.TestCase
