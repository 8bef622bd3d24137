"""Transactions of a log under markers, rolls, cuts, restarts, crashes and torn files, against a list of batches.

After every step, what the log remembers of producers, holds back from readers and tells them to leave out is what the
definitions say of the batches it holds. A follower that copies the batches comes to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storage_cases import ALL, NOW_MS, TOPIC_ID, TP, Disk, read_bytes
from transaction_cases import Outcome, Stored, end, outcome, read_committed, remembered, stored, write

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.control import Marker, MarkerType
from tidelog.storage.aborted_index import ENTRY_SIZE
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log
    from tidelog.storage.store import LogStore

CONFIG = TopicConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = st.integers(1, 4)


class TransactionMachine(RuleBasedStateMachine):
    fs: ForgetfulFilesystem
    store: LogStore
    log: Log

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.fs = ForgetfulFilesystem(seed, page_bytes=64)
        self.disk = Disk(self.fs, "/data")
        self.store = self.disk.open_store(CONFIG)
        self.log = self.store.create(TP, TOPIC_ID, CONFIG)
        self.batches: list[Stored] = []
        self.sequences: dict[tuple[int, int], int] = {}
        self.high_watermark = 0
        self.flushed = 0

    # -- what happens -------------------------------------------------------------------------------------------

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), size=st.integers(0, 100))
    def write(self, producer_id: int, count: int, size: int) -> None:
        self._write(producer_id, count, size, transactional=True)

    @rule(producer_id=PRODUCERS)
    def write_plainly(self, producer_id: int) -> None:
        if producer_id not in self.expected.open:
            self._write(producer_id, 1, 0, transactional=False)
            return
        epoch = self.expected.epochs[producer_id]
        with pytest.raises(BrokerError) as refused:
            write(self.log, producer_id, self._sequence(producer_id), epoch=epoch, transactional=False)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE

    @rule(producer_id=PRODUCERS, commit=st.booleans(), bump=st.booleans(), coordinator=st.integers(0, 1))
    def end(self, producer_id: int, *, commit: bool, bump: bool, coordinator: int) -> None:
        expected = self.expected
        epoch = expected.epochs.get(producer_id, 0) + bump
        coordinator_epoch = max(expected.coordinator_epochs.get(producer_id, 0), 0) + coordinator
        marker = Marker(MarkerType(commit), coordinator_epoch)
        offset = end(self.log, producer_id, marker, epoch=epoch, version=2 if bump else 0)
        self.batches.append(Stored(offset, offset + 1, producer_id, epoch, True, marker))

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), bump=st.booleans())
    def abort(self, producer_id: int, count: int, *, bump: bool) -> None:
        self._write(producer_id, count, 0, transactional=True)
        self.end(producer_id=producer_id, commit=False, bump=bump, coordinator=0)

    @rule(producer_id=PRODUCERS)
    def end_late(self, producer_id: int) -> None:
        """A marker of an epoch that is over."""
        epoch = self.expected.epochs.get(producer_id, 0)
        if epoch:
            with pytest.raises(BrokerError) as refused:
                end(self.log, producer_id, epoch=epoch - 1)
            assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    @rule(share=st.floats(0, 1))
    def become_safe(self, share: float) -> None:
        behind = self.log.log_end_offset - self.high_watermark
        self.high_watermark += int(behind * share)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.log_end_offset

    @rule()
    def checkpoint(self) -> None:
        self.store.write_checkpoints()

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        target = max(0, self.log.log_end_offset - back)
        self.log.truncate_to(target)
        self.batches = [each for each in self.batches if each.next_offset <= target]
        self.flushed = min(self.flushed, self.log.log_end_offset)
        self._settle_all()

    @rule(forget=st.sampled_from(Forget))
    def crash(self, forget: Forget) -> None:
        self.fs.crash(forget)
        self._open()

    @rule(harm=st.sampled_from(["nothing", "torn", "zeros", "longer"]), which=st.integers(0, 5))
    def restart(self, harm: str, which: int) -> None:
        self.store.close()
        self.flushed = self.log.log_end_offset
        names = self.disk.files(".txnindex")
        data = self.disk.content(names[which % len(names)]) if names else b""
        if data and harm != "nothing":
            harmed = {"torn": data[:-1], "zeros": bytes(len(data)), "longer": data + bytes(ENTRY_SIZE)}
            self.disk.overwrite(names[which % len(names)], harmed[harm])
        self.fs.crash(Forget.EVERYTHING)
        self._open()
        assert self.log.log_end_offset == self.flushed

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def the_log_remembers_what_its_batches_say(self) -> None:
        expected = self.expected
        assert remembered(self.log.producers) == expected[:3]
        transactions = self.log.producers.transactions
        transactions.settle(self.high_watermark)
        stable = min(transactions.first_unstable_offset, self.high_watermark)
        assert stable == expected.last_stable_offset(self.high_watermark)
        self._check_aborted(self.log, expected)

    @rule()
    def follow(self) -> None:
        """Somebody copies the log, in pieces, and knows the same."""
        follower = Disk(ForgetfulFilesystem(), "/data").open_log(CONFIG)
        at = 0
        while data := read_bytes(self.log, at, 400):
            at = follower.append_as_follower(data, NOW_MS).next_offset
        assert stored(follower) == self.batches
        assert remembered(follower.producers) == self.expected[:3]
        self._check_aborted(follower, self.expected)

    @rule(chunk_bytes=st.integers(1, 900), share=st.floats(0, 1))
    def read(self, chunk_bytes: int, share: float) -> None:
        """From anywhere, in pieces of any size."""
        expected = self.expected
        stable = expected.last_stable_offset(self.high_watermark)
        start = int(stable * share)
        voided = [each for each in expected.ended if each.aborted]
        wanted = [
            offset
            for each in self.batches
            if each.marker is None
            and not any(
                each.transactional
                and void.producer_id == each.producer_id
                and void.first_offset <= each.base_offset < void.marker_offset
                for void in voided
            )
            for offset in range(each.base_offset, each.next_offset)
            if start <= offset < stable
        ]
        assert [each.offset for each in read_committed(self.log, stable, chunk_bytes, start)] == wanted

    @rule()
    def what_is_held_is_what_was_written(self) -> None:
        assert stored(self.log) == self.batches

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def expected(self) -> Outcome:
        return outcome(self.batches) if hasattr(self, "batches") else outcome([])

    def _check_aborted(self, log: Log, expected: Outcome) -> None:
        end_offset = log.log_end_offset
        step = max(1, end_offset // 6)
        for from_offset in range(0, end_offset, step):
            for upto in range(from_offset + 1, end_offset + 1, step):
                assert log.aborted_transactions(from_offset, upto) == expected.aborted(from_offset, upto)
        assert log.aborted_transactions(0, ALL) == expected.aborted(0, ALL)

    def _write(self, producer_id: int, count: int, size: int, *, transactional: bool) -> None:
        epoch = self.expected.epochs.get(producer_id, 0)
        sequence = self._sequence(producer_id)
        done = write(self.log, producer_id, sequence, count, epoch=epoch, size=size, transactional=transactional)
        assert not done.duplicate
        self.batches.append(Stored(done.base_offset, done.last_offset + 1, producer_id, epoch, transactional, None))

    def _sequence(self, producer_id: int) -> int:
        """What comes next in the producer's epoch, by the batches that are left."""
        epoch = self.expected.epochs.get(producer_id, 0)
        count = 0
        for each in self.batches:
            if each.producer_id == producer_id:
                if each.epoch != epoch:
                    count = 0
                elif each.marker is None:
                    count += each.next_offset - each.base_offset
        return count

    def _open(self) -> None:
        self.store = self.disk.open_store(CONFIG)
        self.log = self.store.logs.get(TP) or self.store.create(TP, TOPIC_ID, CONFIG)
        assert self.log.log_end_offset >= self.flushed
        self.batches = stored(self.log)  # that they are right is another test's matter
        self.flushed = self.log.log_end_offset
        self._settle_all()

    def _settle_all(self) -> None:
        """A snapshot does not say which ended transactions were not yet safe: from here on all are."""
        self.high_watermark = self.log.log_end_offset


TransactionMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTransactionModel = TransactionMachine.TestCase
