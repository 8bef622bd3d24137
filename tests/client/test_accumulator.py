from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.client.accumulator import Accumulator, Batch, ProducerIdentity
from tidelog.records.build import record_size_max
from tidelog.records.compression import Codec
from tidelog.records.header import crc_ok, peek
from tidelog.records.record import iter_records
from tidelog.types import ProducerId, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDENTITY = ProducerIdentity(ProducerId(7), 0)


def make(batch_bytes: int = 100, linger_s: float = 1.0, buffer_bytes: int = 10_000) -> Accumulator[int]:
    return Accumulator(batch_bytes=batch_bytes, linger_s=linger_s, buffer_bytes=buffer_bytes)


def add(
    accumulator: Accumulator[int], token: int, now_s: float = 0.0, partition: TopicPartition = P0, value: bytes = b""
) -> bool:
    size = record_size_max(None, value, ())
    return accumulator.add(partition, 1000 + token, None, value, (), token, now_s, size)


def test_a_record_lingers_and_then_is_ready() -> None:
    accumulator = make()
    assert add(accumulator, 1, now_s=5.0)
    assert accumulator.ready(5.9) == []
    assert accumulator.next_ready_s(5.0) == 6.0
    assert accumulator.ready(6.0) == [P0]
    assert accumulator.next_ready_s(6.0) is None


def test_a_full_batch_is_ready_at_once_and_the_next_record_opens_another() -> None:
    accumulator = make(batch_bytes=100)
    add(accumulator, 1, value=b"x" * 60)
    assert accumulator.ready(0.0) == []
    assert add(accumulator, 2, value=b"x" * 60)
    assert accumulator.ready(0.0) == [P0]
    assert accumulator.take(P0, None).tokens == [1]
    assert accumulator.ready(9.0) == []


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    accumulator = make(batch_bytes=100)
    add(accumulator, 1)
    add(accumulator, 2, value=b"x" * 500)
    add(accumulator, 3)
    assert [accumulator.take(P0, None).tokens] == [[1]]


def test_one_batch_of_a_partition_is_in_flight_and_lanes_do_not_wait_for_each_other() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1)
    batch = accumulator.take(P0, None)
    add(accumulator, 2)
    add(accumulator, 3, partition=P1)
    assert accumulator.ready(0.0) == [P1]
    accumulator.succeeded(batch)
    assert set(accumulator.ready(0.0)) == {P0, P1}


def test_the_longest_waiting_goes_first() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1, now_s=2.0, partition=P1)
    add(accumulator, 2, now_s=3.0, partition=P0)
    assert accumulator.ready(9.0) == [P1, P0]


def test_a_batch_is_what_other_clients_read() -> None:
    accumulator = make(batch_bytes=10_000)
    accumulator.add(P0, 500, b"k", b"v", (("h", None), ("i", b"j")), 1, 0.0, 60)
    accumulator.add(P0, 400, None, None, (), 2, 0.0, 60)
    accumulator.flushing = True
    batch = accumulator.take(P0, IDENTITY)
    for codec in Codec:
        batch.sealed = None
        data = batch.seal(codec)
        header = peek(data)
        assert crc_ok(data, 0, len(data))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
        assert (header.base_timestamp, header.max_timestamp, header.record_count) == (500, 500, 2)
        assert [tuple(record) for record in iter_records(data)] == [
            (0, 500, b"k", b"v", (("h", None), ("i", b"j"))),
            (1, 400, None, None, ()),
        ]


def test_sequences_follow_each_other_and_a_retry_repeats_its_own_bytes() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1)
    add(accumulator, 2)
    first = accumulator.take(P0, IDENTITY)
    sent = bytes(first.seal(Codec.NONE))
    accumulator.retry(first, not_before_s=5.0)
    add(accumulator, 3)
    assert accumulator.ready(4.0) == []
    assert accumulator.next_ready_s(4.0) == 5.0
    again = accumulator.take(P0, IDENTITY)
    assert again is first
    assert bytes(again.seal(Codec.NONE)) == sent
    assert again.attempts == 2
    accumulator.succeeded(again)
    third = accumulator.take(P0, IDENTITY)
    assert (third.tokens, third.base_sequence) == ([3], 2)


def test_a_batch_that_was_surely_not_stored_leaves_its_sequence_to_the_next() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1)
    accumulator.failed(accumulator.take(P0, IDENTITY))
    add(accumulator, 2)
    assert accumulator.take(P0, IDENTITY).base_sequence == 0
    assert not accumulator.identity_spent


def test_a_batch_that_may_be_stored_spends_the_identity() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1)
    accumulator.succeeded(accumulator.take(P0, IDENTITY))
    add(accumulator, 2)
    batch = accumulator.take(P0, IDENTITY)
    batch.maybe_stored = True
    accumulator.failed(batch)
    assert accumulator.identity_spent
    add(accumulator, 3)
    fresh = ProducerIdentity(ProducerId(8), 0)
    batch = accumulator.take(P0, fresh)
    assert (batch.identity, batch.base_sequence) == (fresh, 0)


def test_renewing_sends_the_records_under_the_new_identity() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1)
    batch = accumulator.take(P0, IDENTITY)
    batch.seal(Codec.NONE)
    accumulator.retry(batch, 0.0, renew=True)
    assert accumulator.identity_spent
    fresh = ProducerIdentity(ProducerId(8), 0)
    again = accumulator.take(P0, fresh)
    assert peek(again.seal(Codec.NONE)).producer_id == 8


def test_sequences_wrap_around() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1)
    batch = accumulator.take(P0, IDENTITY)
    batch.base_sequence = 2**31 - 1
    accumulator.succeeded(batch)
    add(accumulator, 2)
    assert accumulator.take(P0, IDENTITY).base_sequence == 0


def test_room_is_counted_in_bytes_and_comes_back() -> None:
    accumulator = make(buffer_bytes=150, linger_s=0)
    add(accumulator, 1, value=b"x" * 100)
    assert not accumulator.has_room(60)
    accumulator.succeeded(accumulator.take(P0, None))
    assert accumulator.used_bytes == 0
    assert accumulator.empty
    assert accumulator.has_room(10**9), "a record larger than the buffer must still get its turn"


def test_a_half_full_buffer_is_not_kept_waiting() -> None:
    accumulator = make(buffer_bytes=100, batch_bytes=1000, linger_s=100)
    add(accumulator, 1, value=b"x" * 60)
    assert accumulator.ready(0.0) == [P0]


def test_flushing_sends_what_lingers() -> None:
    accumulator = make()
    add(accumulator, 1)
    accumulator.flushing = True
    assert accumulator.ready(0.0) == [P0]


def test_old_batches_expire_unless_they_are_in_flight() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1, now_s=1.0)
    add(accumulator, 2, now_s=1.0, partition=P1)
    flying = accumulator.take(P1, None)
    add(accumulator, 3, now_s=2.0, partition=P1)
    assert accumulator.oldest_s() == 1.0
    assert [batch.tokens for batch in accumulator.expire(1.0)] == [[1]]
    assert accumulator.oldest_s() is None, "a lane in flight cannot expire"
    accumulator.succeeded(flying)
    assert [batch.tokens for batch in accumulator.expire(5.0)] == [[3]]
    assert accumulator.empty


@given(st.lists(st.binary(max_size=30), min_size=2, max_size=20))
def test_halves_hold_the_same_records(values: list[bytes]) -> None:
    batch: Batch[int] = Batch(P0, 1.0, 100)
    for token, value in enumerate(values):
        batch.add(100 + token * 7, b"key", value, (("n", b"%d" % token),), token)
    first, second = batch.halves()
    assert first.tokens + second.tokens == list(range(len(values)))
    assert abs(first.record_count - second.record_count) <= 1
    records = [*iter_records(first.seal(Codec.NONE)), *iter_records(second.seal(Codec.NONE))]
    assert [(r.value, r.timestamp, r.headers) for r in records] == [
        (value, 100 + token * 7, (("n", b"%d" % token),)) for token, value in enumerate(values)
    ]


class Deliveries(RuleBasedStateMachine):
    """Whatever happens to batches: each record is settled once, in order, and sequences have no gap."""

    @initialize(batch_bytes=st.integers(30, 200))
    def begin(self, batch_bytes: int) -> None:
        self.accumulator: Accumulator[int] = make(batch_bytes=batch_bytes, linger_s=0.5, buffer_bytes=10**6)
        self.now_s = 0.0
        self.tokens = 0
        self.sent: dict[TopicPartition, list[int]] = defaultdict(list)
        self.settled: dict[TopicPartition, list[int]] = defaultdict(list)
        self.flying: dict[TopicPartition, Batch[int]] = {}
        self.identity = IDENTITY
        self.expected: dict[tuple[TopicPartition, Any], int] = {}

    @rule(partition=st.sampled_from([P0, P1]), size=st.integers(0, 120))
    def send(self, partition: TopicPartition, size: int) -> None:
        self.tokens += 1
        add(self.accumulator, self.tokens, self.now_s, partition, b"x" * size)
        self.sent[partition].append(self.tokens)

    @rule(seconds=st.floats(0, 2))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def dispatch(self) -> None:
        if self.accumulator.identity_spent:
            self.identity = ProducerIdentity(ProducerId(self.identity.producer_id + 1), 0)
            self.accumulator.identity_spent = False
        for partition in self.accumulator.ready(self.now_s):
            assert partition not in self.flying
            batch = self.accumulator.take(partition, self.identity)
            self.flying[partition] = batch
            expected = self.expected.setdefault((partition, batch.identity), 0)
            assert batch.base_sequence == expected
            header = peek(batch.seal(Codec.NONE))
            assert (header.producer_id, header.base_sequence) == (batch.identity[0], expected)  # type: ignore[index]

    def _land(self, data: st.DataObject) -> Batch[int]:
        return self.flying.pop(data.draw(st.sampled_from(sorted(self.flying))))

    def _settle(self, batch: Batch[int]) -> None:
        self.settled[batch.partition] += batch.tokens

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        batch = self._land(data)
        self.accumulator.succeeded(batch)
        self.expected[batch.partition, batch.identity] += batch.record_count
        self._settle(batch)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), doubt=st.booleans())
    def fail(self, data: st.DataObject, doubt: bool) -> None:
        batch = self._land(data)
        batch.maybe_stored = batch.maybe_stored or doubt
        self.accumulator.failed(batch)
        self._settle(batch)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), wait_s=st.floats(0, 1), renew=st.booleans())
    def retry(self, data: st.DataObject, wait_s: float, renew: bool) -> None:
        self.accumulator.retry(self._land(data), self.now_s + wait_s, renew=renew)

    @precondition(lambda self: any(batch.record_count > 1 for batch in self.flying.values()))
    @rule()
    def split(self) -> None:
        partition = next(partition for partition, batch in self.flying.items() if batch.record_count > 1)
        self.accumulator.split(self.flying.pop(partition))

    @rule()
    def expire(self) -> None:
        for batch in self.accumulator.expire(self.now_s - 3.0):
            self._settle(batch)

    @invariant()
    def each_record_is_settled_once_and_in_order(self) -> None:
        for partition, tokens in self.settled.items():
            assert tokens == self.sent[partition][: len(tokens)]

    @invariant()
    def the_bytes_add_up(self) -> None:
        left = sum(len(tokens) for tokens in self.sent.values()) - sum(len(t) for t in self.settled.values())
        assert self.accumulator.empty == (left == 0)
        assert (self.accumulator.used_bytes == 0) == (left == 0)

    def teardown(self) -> None:
        if hasattr(self, "accumulator"):
            drained = [token for batch in self.accumulator.drain() for token in batch.tokens]
            settled = [token for tokens in self.settled.values() for token in tokens]
            assert sorted(drained + settled) == list(range(1, self.tokens + 1))


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_taking_twice_is_our_own_mistake() -> None:
    accumulator = make(linger_s=0)
    add(accumulator, 1)
    accumulator.take(P0, None)
    add(accumulator, 2)
    with pytest.raises(AssertionError, match="already has a batch in flight"):
        accumulator.take(P0, None)
