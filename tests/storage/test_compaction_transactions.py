"""Compaction and transactions: aborted records go, markers stay as long as they mean something, open ones are left."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from compaction_cases import AMPLE, COMPACTED, UNTHROTTLED, Pair, clean, close_segment, keyed, put, read_all
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk, append, read_headers
from transaction_cases import ABORT, COMMIT, end, read_committed, remembered

from tidelog.records.control import Marker, MarkerType
from tidelog.storage.aborted import AbortedTransaction
from tidelog.storage.compaction import ticket as tickets
from tidelog.storage.compaction.cleaning import Cleaning
from tidelog.storage.compaction.job import CleaningJob
from tidelog.storage.compaction.offset_map import ENTRY_BYTES
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log
    from tidelog.storage.store import LogStore

HORIZON_MS = COMPACTED.delete_retention_ms


def put_in(log: Log, producer_id: int, sequence: int, *pairs: Pair) -> int:
    """Part of the producer's transaction; gives the batch's base offset."""
    return put(log, *pairs, producer_id=producer_id, sequence=sequence, transactional=True)


def values(log: Log) -> list[bytes | None]:
    return [each.value for each in read_all(log) if each.key in {b"k", b"other"}]


def markers(log: Log) -> list[int]:
    return [header.base_offset for header in read_headers(log) if header.control and header.record_count]


def test_an_aborted_record_goes_and_supersedes_nothing(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"k", b"committed"))
    put_in(log, 7, 0, (b"k", b"void"))
    end(log, 7, ABORT)
    put(log, (b"other", b"1"))
    close_segment(log)
    clean(log)
    assert values(log) == [b"committed", b"1"]
    assert log.aborted_transactions(0, 10) == [AbortedTransaction(7, 1)], "its emptied batch keeps the sequence"


def test_a_committed_record_supersedes_and_is_superseded(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"k", b"1"))
    put_in(log, 7, 0, (b"k", b"2"), (b"other", b"2"))
    end(log, 7, COMMIT)
    put(log, (b"other", b"3"))
    close_segment(log)
    clean(log)
    assert values(log) == [b"2", b"3"]


def test_an_open_transaction_stops_it(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    close_segment(log)
    put_in(log, 7, 0, (b"k", b"who knows"))
    close_segment(log)
    put(log, (b"k", b"4"))
    close_segment(log)
    assert clean(log).end_offset == 2
    assert values(log) == [b"2", b"who knows", b"4"]


def test_a_marker_that_is_not_yet_safe_stops_it_too(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put_in(log, 7, 0, (b"k", b"1"))
    close_segment(log)
    end(log, 7, COMMIT)
    put(log, (b"k", b"2"))
    close_segment(log)
    log.producers.transactions.settle(1)
    assert tickets.look(log, log.log_end_offset, NOW_MS).upper == 0
    log.producers.transactions.settle(2)
    assert tickets.look(log, log.log_end_offset, NOW_MS).upper == 3


def test_a_marker_goes_some_time_after_its_records(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    first = put_in(log, 7, 0, (b"k", b"void"))
    marker = end(log, 7, ABORT)
    second = put_in(log, 7, 1, (b"k", b"good"))
    committed = end(log, 7, COMMIT)
    put(log, (b"k", b"better"))
    close_segment(log)
    clean(log)
    assert [header.base_offset for header in read_headers(log)] == [marker, second, committed, 4], f"{first} is gone"
    assert log.aborted_transactions(0, 10) == [AbortedTransaction(7, first)], "a reader may have come that far"
    log.clean_offset = 0
    clean(log, NOW_MS + 1)
    assert log.aborted_transactions(0, 10) == [], "nothing is left of it"
    assert markers(log) == [marker, committed]
    log.clean_offset = 0
    clean(log, NOW_MS + HORIZON_MS)
    assert markers(log) == [marker, committed], "its time began with the cleaning before"
    log.clean_offset = 0
    clean(log, NOW_MS + 1 + HORIZON_MS)
    assert markers(log) == [committed], "the producer's last batch is still there, emptied"


def test_the_last_marker_of_a_producer_stays_for_its_epoch(disk: Disk) -> None:
    """With an epoch per transaction, the marker alone says which epoch is over."""
    store = disk.open_store(COMPACTED)
    log = store.create(TP, TOPIC_ID, COMPACTED)
    put_in(log, 7, 0, (b"k", b"1"))
    marker = end(log, 7, COMMIT, epoch=1, version=2)
    put(log, (b"k", b"2"))
    close_segment(log)
    for later_ms in (0, 1, 2 * HORIZON_MS, 4 * HORIZON_MS):
        log.clean_offset = 0
        clean(log, NOW_MS + later_ms)
    assert markers(log) == [marker]
    store.close()
    for name in disk.files(".snapshot"):
        disk.fs.remove(f"{disk.partition}/{name}")
    again = disk.open_log(COMPACTED)
    assert remembered(again.producers)[0] == {7: 1}


def test_a_transaction_may_span_segments_that_are_cleaned_one_after_the_other(disk: Disk) -> None:
    log = disk.open_log(replace(COMPACTED, segment_bytes=200))
    for sequence in range(4):
        put_in(log, 7, 2 * sequence, (b"k", b"%d" % sequence), (b"x%d" % sequence, bytes(60)))
        log.roll(NOW_MS)
    end(log, 7, ABORT)
    put(log, (b"k", b"stays"), (b"x", bytes(60)))
    close_segment(log)
    clean(log)
    assert values(log) == [b"stays"]
    assert [each.value for each in read_committed(log, log.log_end_offset, 100) if each.key == b"k"] == [b"stays"]


def test_small_segments_become_one_with_all_that_was_aborted_in_them(disk: Disk) -> None:
    store = disk.open_store(COMPACTED)
    log = store.create(TP, TOPIC_ID, COMPACTED)
    for producer_id in (1, 2, 3):
        put_in(log, producer_id, 0, (b"k", b"void"))
        end(log, producer_id, ABORT)
        close_segment(log)
    expected = [AbortedTransaction(1, 0), AbortedTransaction(2, 2), AbortedTransaction(3, 4)]
    assert log.aborted_transactions(0, 10) == expected
    clean(log)
    assert len(disk.files(".log")) == 2
    assert log.aborted_transactions(0, 10) == expected, "emptied batches keep the producers' sequences"
    store.close()
    assert disk.open_log(COMPACTED).aborted_transactions(0, 10) == expected


def test_a_swap_that_was_interrupted_at_its_last_step_keeps_the_index(disk: Disk) -> None:
    store = disk.open_store(COMPACTED)
    log = store.create(TP, TOPIC_ID, COMPACTED)
    put_in(log, 7, 0, (b"k", b"void"))
    end(log, 7, ABORT)
    close_segment(log)
    clean(log)
    store.close()
    stem = f"{disk.partition}/{0:020d}"
    disk.fs.rename(f"{stem}.log", f"{stem}.log.swap")
    again = disk.open_log(COMPACTED)
    assert len(read_headers(again)) == 2
    assert again.aborted_transactions(0, 10) == [AbortedTransaction(7, 0)]


def test_what_the_cleaner_is_told_survives_the_way_to_its_process(disk: Disk) -> None:
    log = disk.open_log(COMPACTED)
    put_in(log, 7, 0, (b"k", b"void"))
    end(log, 7, ABORT, epoch=1, version=2)
    close_segment(log)
    log.producers.transactions.settle(2)
    job = tickets.take(log, log.log_end_offset, NOW_MS, AMPLE).job
    assert len(job.aborted) == 1
    assert job.epoch_of_producers == {7: 1}
    assert CleaningJob.from_json(json.loads(json.dumps(job.to_json()))) == job


# -- the model ----------------------------------------------------------------------------------------------------

CONFIG = replace(COMPACTED, segment_bytes=600)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=3)
PRODUCERS = st.integers(1, 3)


class Step(NamedTuple):
    """A batch that was written. `marker` is None for data, `producer_id` -1 for plain data."""

    offset: int
    pairs: list[tuple[bytes, bytes | None]]
    producer_id: int = -1
    epoch: int = -1
    marker: Marker | None = None

    @property
    def next_offset(self) -> int:
        return self.offset + max(1, len(self.pairs))


class CompactedTransactionsMachine(RuleBasedStateMachine):
    """A read_committed reader finds the newest committed value of every key, and nothing else; producers go on."""

    fs: ForgetfulFilesystem
    store: LogStore
    log: Log

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.fs = ForgetfulFilesystem(seed, page_bytes=128)
        self.disk = Disk(self.fs, "/data")
        self.store = self.disk.open_store(CONFIG)
        self.log = self.store.create(TP, TOPIC_ID, CONFIG)
        self.steps: list[Step] = []
        self.now_ms = NOW_MS

    # -- what happens -------------------------------------------------------------------------------------------

    @rule(pairs=PAIRS)
    def write(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        self.steps.append(Step(put(self.log, *pairs), pairs))

    @rule(producer_id=PRODUCERS, pairs=PAIRS)
    def write_in_transaction(self, producer_id: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        epoch, sequence = self._producer(producer_id)
        batch = keyed(pairs, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
        done = append(self.log, batch)
        assert not done.duplicate
        self.steps.append(Step(done.base_offset, pairs, producer_id, epoch))

    @rule(producer_id=PRODUCERS, commit=st.booleans(), bump=st.booleans())
    def end(self, producer_id: int, *, commit: bool, bump: bool) -> None:
        epoch = self._producer(producer_id)[0] + bump
        marker = Marker(MarkerType(commit), 0)
        offset = end(self.log, producer_id, marker, epoch=epoch, version=2 if bump else 0)
        self.steps.append(Step(offset, [], producer_id, epoch, marker))

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush()

    @rule(keys=st.integers(1, 9), later_ms=st.integers(0, 1500), from_start=st.booleans())
    def clean(self, keys: int, later_ms: int, *, from_start: bool) -> None:
        self.now_ms += later_ms
        if from_start:
            self.log.clean_offset = 0
        clean(self.log, self.now_ms, AMPLE._replace(map_bytes=keys * ENTRY_BYTES))

    @rule(groups=st.integers(0, 2), forget=st.sampled_from(Forget))
    def crash_while_cleaning(self, groups: int, forget: Forget) -> None:
        self.log.producers.transactions.settle(self.log.flushed_offset)
        ticket = tickets.take(self.log, self.log.log_end_offset, self.now_ms, AMPLE)
        cleaning = Cleaning(self.fs, ticket.job, UNTHROTTLED)
        for group in cleaning.map_dirty().groups[:groups]:
            cleaned = cleaning.clean(group)
            if cleaned is not None:
                assert self.log.put_cleaned(ticket, group, cleaned)
        self.crash(forget)

    @rule(forget=st.sampled_from(Forget))
    def crash(self, forget: Forget) -> None:
        self.fs.crash(forget)
        self._open()
        self.steps = [each for each in self.steps if each.next_offset <= self.log.log_end_offset]

    @rule(lose_snapshots=st.booleans())
    def restart(self, *, lose_snapshots: bool) -> None:
        self.store.close()
        if lose_snapshots:
            for name in self.disk.files(".snapshot"):
                self.fs.remove(f"{self.disk.partition}/{name}")
            self.fs.sync_dir(self.disk.partition)
        self._open()

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def producers_are_known(self) -> None:
        if not hasattr(self, "log"):
            return
        epochs, _, open_ = remembered(self.log.producers)
        assert epochs == {each.producer_id: each.epoch for each in self.steps if each.producer_id >= 0}
        assert set(open_) == set(self._open_transactions())
        for producer_id, producer in self.log.producers:
            if producer.window:
                assert producer.last_sequence + 1 == self._producer(producer_id)[1]

    @rule(chunk_bytes=st.integers(1, 900))
    def read(self, chunk_bytes: int) -> None:
        transactions = self.log.producers.transactions
        transactions.settle(self.log.flushed_offset)
        stable = min(transactions.first_unstable_offset, self.log.flushed_offset)
        state: dict[bytes, bytes] = {}
        for record in read_committed(self.log, stable, chunk_bytes):
            assert record.key is not None
            state.pop(record.key, None)
            if record.value is not None:
                state[record.key] = record.value
        assert state == self._committed(stable)

    # -- inside -------------------------------------------------------------------------------------------------

    def _committed(self, upto: int) -> dict[bytes, bytes]:
        outcomes: dict[int, bool] = {}
        for at, step in enumerate(self.steps):
            if step.producer_id >= 0 and step.marker is None:
                later = (each for each in self.steps[at:] if each.producer_id == step.producer_id and each.marker)
                found = next(later, None)
                outcomes[step.offset] = bool(found and found.marker and found.marker.committed)
        state: dict[bytes, bytes] = {}
        for step in self.steps:
            if step.offset < upto and outcomes.get(step.offset, True):
                for key, value in step.pairs:
                    state.pop(key, None)
                    if value is not None:
                        state[key] = value
        return state

    def _open_transactions(self) -> set[int]:
        found: set[int] = set()
        for step in self.steps:
            if step.producer_id >= 0:
                (found.discard if step.marker else found.add)(step.producer_id)
        return found

    def _producer(self, producer_id: int) -> tuple[int, int]:
        """Its epoch, and the sequence that comes next."""
        epoch = sequence = 0
        for step in self.steps:
            if step.producer_id == producer_id:
                if step.epoch != epoch:
                    epoch, sequence = step.epoch, 0
                sequence += len(step.pairs)
        return epoch, sequence

    def _open(self) -> None:
        self.store = self.disk.open_store(CONFIG)
        self.log = self.store.logs.get(TP) or self.store.create(TP, TOPIC_ID, CONFIG)
        self.log.producers.transactions.settle(self.log.log_end_offset)


CompactedTransactionsMachine.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestCompactedTransactions = CompactedTransactionsMachine.TestCase
