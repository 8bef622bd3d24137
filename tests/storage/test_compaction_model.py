"""A compacted log under writes, cleanings, cuts and power cuts, against the plainest model: the last value per key.

At any time: what is read was once written under that offset, in order; the newest record of every key is there; and a
key whose tombstone is gone has nothing left.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from compaction_cases import AMPLE, COMPACTED, UNTHROTTLED, Found, clean, put, read_all
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk

from tidelog.records.compression import Codec
from tidelog.storage.checkpoint_files import CheckpointFiles
from tidelog.storage.compaction import ticket as tickets
from tidelog.storage.compaction.cleaning import Cleaning
from tidelog.storage.compaction.offset_map import ENTRY_BYTES
from tidelog.testing.forgetful_fs import Forget, ForgetfulFilesystem

if TYPE_CHECKING:
    from tidelog.storage.log import Log
    from tidelog.storage.store import LogStore

CONFIG = replace(COMPACTED, segment_bytes=600)

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e" * 40, b"f" * 40, b""])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=30)), min_size=1, max_size=5)


class CompactionMachine(RuleBasedStateMachine):
    fs: ForgetfulFilesystem
    disk: Disk
    store: LogStore
    log: Log

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.fs = ForgetfulFilesystem(seed, page_bytes=128)
        self.disk = Disk(self.fs, "/data")
        self.store = self.disk.open_store(CONFIG)
        self.log = self.store.create(TP, TOPIC_ID, CONFIG)
        self.written: list[Found] = []
        self.now_ms = NOW_MS
        self.sequence = 0

    # -- what happens -------------------------------------------------------------------------------------------

    @rule(pairs=PAIRS, codec=st.sampled_from(Codec))
    def write(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        self._write(pairs, codec=codec)

    @rule(pairs=PAIRS)
    def produce(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        """By the one idempotent producer, whose sequence must hold over everything."""
        self._write(pairs, producer_id=7, sequence=self.sequence)
        self.sequence += len(pairs)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(keys=st.integers(1, 9), later_ms=st.integers(0, 700))
    def clean(self, keys: int, later_ms: int) -> None:
        self.now_ms += later_ms
        clean(self.log, self.now_ms, AMPLE._replace(map_bytes=keys * ENTRY_BYTES))

    @rule()
    def clean_all_twice(self) -> None:
        """The second time there is nothing left to do."""
        self.log.roll(self.now_ms)
        self.log.flush()
        for _ in range(2):
            clean(self.log, self.now_ms)
        closed = [each for each in read_all(self.log) if each.offset < self.log.segments.active.base_offset]
        assert len({each.key for each in closed}) == len(closed)

    @rule(groups=st.integers(0, 2), forget=st.sampled_from(Forget))
    def crash_while_cleaning(self, groups: int, forget: Forget) -> None:
        ticket = tickets.take(self.log, self.log.log_end_offset, self.now_ms, AMPLE)
        cleaning = Cleaning(self.fs, ticket.job, UNTHROTTLED)
        for group in cleaning.map_dirty().groups[:groups]:
            cleaned = cleaning.clean(group)
            if cleaned is not None:
                assert self.log.put_cleaned(ticket, group, cleaned)
        self.crash(forget)

    @rule(forget=st.sampled_from(Forget))
    def crash(self, forget: Forget) -> None:
        flushed, written_down = self._flushed_batches_end(), self._recovery_point()
        self.fs.crash(forget)
        self._open()
        assert self.log.log_end_offset >= flushed
        assert self.log.log_end_offset >= written_down, "not even where a cut left a gap at the end"
        self.written = [each for each in self.written if each.offset < self.log.log_end_offset]
        self._find_sequence()

    @rule()
    def restart(self) -> None:
        ends_at = self.log.log_end_offset
        self.store.close()
        self._open()
        assert self.log.log_end_offset == ends_at

    @rule()
    def checkpoint(self) -> None:
        self.store.write_checkpoints()

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        """Whatever was superseded by what is cut off is gone for good: an election that was not clean."""
        target = int(self.log.log_end_offset * share)
        self.log.truncate_to(target)
        self.log.flush()
        self.written = read_all(self.log)
        self._find_sequence()

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_made_up_and_nothing_is_lost(self) -> None:
        found = read_all(self.log)
        assert set(found) <= set(self.written)
        assert all(one.offset < other.offset for one, other in pairwise(found))
        newest = {each.key: each for each in self.written}
        for key, record in newest.items():
            if record.value is not None:
                assert record in found
            elif record not in found:
                assert not [each for each in found if each.key == key], "deleted records do not come back"
                self.written = [each for each in self.written if each.key != key]

    # -- inside -------------------------------------------------------------------------------------------------

    def _write(self, pairs: list[tuple[bytes, bytes | None]], **options: object) -> None:
        base = put(self.log, *pairs, timestamp=self.now_ms, **options)
        self.written += [Found(base + at, self.now_ms + at, *pair) for at, pair in enumerate(pairs)]

    def _open(self) -> None:
        self.disk = Disk(self.fs, "/data")
        self.store = self.disk.open_store(CONFIG)
        self.log = self.store.logs.get(TP) or self.store.create(TP, TOPIC_ID, CONFIG)

    def _flushed_batches_end(self) -> int:
        """A gap at the end of a log, of which no checkpoint tells, may go with a crash: nothing is in it."""
        ends = [header.next_offset for each in self.log.segments if each.size for _, header in each.headers()]
        return max((each for each in ends if each <= self.log.flushed_offset), default=0)

    def _recovery_point(self) -> int:
        checkpoints = CheckpointFiles(self.fs, "/data")
        checkpoints.load()
        return min(self.log.flushed_offset, checkpoints.recovery_points.get(TP, 0))

    def _find_sequence(self) -> None:
        producer = self.log.producers.get(7)
        self.sequence = 0 if producer is None else producer.last_sequence + 1


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
