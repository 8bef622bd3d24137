from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.fetching import NEVER_S, FetchPlanner, PartitionBuffer
from tidelog.client.offsets import OffsetSpec
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.compression import Codec
from tidelog.records.control import Marker, MarkerType, build_marker
from tidelog.records.record import Record
from tidelog.types import BrokerId, Offset, ProducerId, TopicPartition

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
LEADERS = {P0: BrokerId(1), P1: BrokerId(1), P2: BrokerId(2)}


def batch(first: int, count: int, codec: Codec = Codec.NONE, *, control: bool = False) -> bytes:
    records = [Record(first + at, 5000 + at, b"k", b"v%d" % (first + at), ()) for at in range(count)]
    return bytes(build_batch(records, codec=codec, control=control))


def buffer_at(offset: int, partition: TopicPartition = P0) -> PartitionBuffer:
    buffer = PartitionBuffer(partition, check_crcs=True)
    buffer.seek(Offset(offset))
    return buffer


def test_records_come_out_as_they_went_in() -> None:
    buffer = buffer_at(0)
    assert buffer.add(memoryview(batch(0, 2) + batch(2, 1, Codec.LZ4)))
    first, second, third = buffer.take(10)
    assert tuple(first) == ("t", 0, 0, 5000, b"k", b"v0", ())
    assert [second.offset, third.offset] == [1, 2]
    assert buffer.position == 3
    assert buffer.fetch_offset == 3


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    start=st.integers(0, 10),
    takes=st.lists(st.integers(1, 9), min_size=1, max_size=40),
)
def test_any_portions_give_the_same_records(counts: list[int], start: int, takes: list[int]) -> None:
    total = sum(counts)
    start = min(start, total - 1)
    buffer = buffer_at(start)
    data, offset = b"", 0
    for count in counts:
        data += batch(offset, count)
        offset += count
    buffer.add(memoryview(data))
    taken: list[int] = []
    for count in [*takes, total]:
        got = buffer.take(count)
        assert len(got) <= count
        taken += [record.offset for record in got]
        assert buffer.position == start + len(taken)
    assert taken == list(range(start, total))


def test_a_fetch_from_the_middle_of_a_batch_skips_what_lies_before() -> None:
    buffer = buffer_at(3)
    buffer.add(memoryview(batch(0, 5)))
    assert [record.offset for record in buffer.take(10)] == [3, 4]


def test_a_cut_off_batch_is_left_for_the_next_fetch() -> None:
    buffer = buffer_at(0)
    assert buffer.add(memoryview(batch(0, 2) + batch(2, 2)[:-1]))
    assert [record.offset for record in buffer.take(10)] == [0, 1]
    assert buffer.fetch_offset == 2
    assert not buffer.add(memoryview(batch(2, 2)[:-1]))


def test_markers_move_the_position_and_are_not_shown() -> None:
    buffer = buffer_at(0)
    buffer.add(memoryview(batch(0, 1) + batch(1, 1, control=True)))
    assert [record.offset for record in buffer.take(10)] == [0]
    assert buffer.position == 2
    buffer.add(memoryview(batch(2, 1, control=True)))
    assert buffer.waiting
    assert buffer.take(10) == []
    assert buffer.position == 3


def test_damage_is_named_with_its_place() -> None:
    buffer = buffer_at(0)
    broken = bytearray(batch(7, 3))
    broken[-1] ^= 1
    buffer.add(memoryview(batch(0, 7) + broken))
    assert len(buffer.take(7)) == 7
    with pytest.raises(BrokerError, match=r"t-0: the batch at offset 7 is damaged .* seek past offset 9") as caught:
        buffer.take(1)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_damage_can_be_left_unchecked() -> None:
    buffer = PartitionBuffer(P0, check_crcs=False)
    buffer.seek(Offset(0))
    broken = bytearray(batch(0, 1))
    broken[17] ^= 1
    buffer.add(memoryview(broken))
    assert len(buffer.take(1)) == 1


def test_two_answers_are_kept_and_no_more_is_asked_for() -> None:
    buffer = buffer_at(0)
    fetchable = [buffer.fetchable]
    for first in (0, 2):
        buffer.add(memoryview(batch(first, 2)))
        fetchable.append(buffer.fetchable)
    for _ in range(2):
        buffer.take(1)
        fetchable.append(buffer.fetchable)
    assert fetchable == [True, True, False, False, True]


def test_seeking_forgets_what_was_fetched() -> None:
    buffer = buffer_at(0)
    buffer.add(memoryview(batch(0, 2)))
    generation = buffer.generation
    buffer.seek(Offset(40))
    assert not buffer.waiting
    assert (buffer.position, buffer.fetch_offset) == (40, 40)
    assert buffer.generation != generation


def test_a_lost_partition_is_not_fetched_until_it_is_found() -> None:
    buffer = buffer_at(0)
    buffer.lose(OffsetSpec.earliest())
    assert not buffer.fetchable
    buffer.seek(Offset(3))
    assert buffer.fetchable


def full(partition: TopicPartition) -> PartitionBuffer:
    buffer = buffer_at(0, partition)
    buffer.add(memoryview(batch(0, 1)))
    buffer.add(memoryview(batch(1, 1)))
    return buffer


def test_partitions_are_fetched_together_from_their_leader() -> None:
    planner = FetchPlanner(rest_s=0.5)
    buffers = [buffer_at(0, P0), buffer_at(0, P1), buffer_at(0, P2)]
    plans = planner.plan(buffers, LEADERS.get, 0.0)
    assert {plan.broker: [b.partition for b in plan.buffers] for plan in plans} == {1: [P0, P1], 2: [P2]}
    assert not any(plan.partial for plan in plans)
    assert planner.plan(buffers, LEADERS.get, 0.0) == [], "one fetch per broker at a time"
    planner.finished(plans[0], empty=True, now_s=0.0)
    assert [plan.broker for plan in planner.plan(buffers, LEADERS.get, 0.0)] == [1]


def test_a_fetch_that_leaves_partitions_out_is_partial_and_not_repeated_in_a_hurry() -> None:
    planner = FetchPlanner(rest_s=0.5)
    waiting, busy = buffer_at(0, P0), full(P1)
    (plan,) = planner.plan([waiting, busy], LEADERS.get, 10.0)
    assert plan.partial
    assert [b.partition for b in plan.buffers] == [P0]
    planner.finished(plan, empty=True, now_s=10.0)
    assert planner.plan([waiting, busy], LEADERS.get, 10.1) == []
    assert planner.next_due_s([waiting, busy], 10.1) == 10.5
    busy.take(2)
    (plan,) = planner.plan([waiting, busy], LEADERS.get, 10.2)
    assert len(plan.buffers) == 2, "a drained partition ends the rest at once"


def test_the_same_partial_fetch_comes_again_after_its_rest() -> None:
    planner = FetchPlanner(rest_s=0.5)
    buffers = [buffer_at(0, P0), full(P1)]
    (plan,) = planner.plan(buffers, LEADERS.get, 10.0)
    planner.finished(plan, empty=True, now_s=10.0)
    assert len(planner.plan(buffers, LEADERS.get, 10.5)) == 1


def test_a_partition_that_failed_waits_its_time() -> None:
    planner = FetchPlanner(rest_s=0.5)
    failed = buffer_at(0, P2)
    failed.not_before_s = 3.0
    assert planner.plan([failed], LEADERS.get, 2.0) == []
    assert planner.next_due_s([failed], 2.0) == 3.0
    assert len(planner.plan([failed], LEADERS.get, 3.0)) == 1


def test_a_partition_that_failed_for_good_is_not_waited_for() -> None:
    lost = buffer_at(0, P2)
    lost.not_before_s = NEVER_S
    assert FetchPlanner(rest_s=0.5).next_due_s([lost], 2.0) is None


def test_a_partition_without_a_leader_is_left_alone() -> None:
    assert FetchPlanner(rest_s=0.5).plan([buffer_at(0)], lambda _partition: None, 0.0) == []


def leader_of(partition: TopicPartition) -> BrokerId | None:
    return LEADERS[partition]


def test_nothing_is_fetched_while_too_much_waits() -> None:
    first, second = buffer_at(0, P0), buffer_at(0, P2)
    first.add(memoryview(batch(0, 5)))
    size = first.held_bytes
    assert (size > 0, first.held_records) == (True, 5)
    for planner in (FetchPlanner(rest_s=0.5, bytes_max=size), FetchPlanner(rest_s=0.5, records_max=5)):
        plans, full = [planner.plan([first, second], leader_of, 0.0)], [planner.full]
        first.take(4)
        plans.append(planner.plan([first, second], leader_of, 0.0))
        full.append(planner.full)
        assert [len(each) for each in plans] == [0, 2]
        assert full == [True, False]
        first.seek(Offset(0))
        first.add(memoryview(batch(0, 5)))
    assert FetchPlanner(rest_s=0.5, bytes_max=size + 10).room_bytes([first, second]) == 10
    assert FetchPlanner(rest_s=0.5, bytes_max=size - 10).room_bytes([first, second]) == 1


def test_what_waits_in_paused_partitions_does_not_stop_the_others() -> None:
    paused, other = buffer_at(0, P0), buffer_at(0, P2)
    paused.add(memoryview(batch(0, 5)))
    paused.paused = True
    planner = FetchPlanner(rest_s=0.5, records_max=1)
    (plan,) = planner.plan([paused, other], leader_of, 0.0)
    assert (plan.buffers, plan.partial) == ((other,), False)


def test_a_paused_partition_does_not_make_its_broker_answer_at_once() -> None:
    paused, other = buffer_at(0, P0), buffer_at(0, P1)
    paused.paused = True
    (plan,) = FetchPlanner(rest_s=0.5).plan([paused, other], leader_of, 0.0)
    assert not plan.partial


def test_a_nearer_replica_is_asked_for_as_long_as_it_is_believed() -> None:
    buffer = buffer_at(0, P0)
    buffer.preferred = (BrokerId(9), 10.0)
    for now_s, broker in ((9.0, 9), (10.0, 1)):
        (plan,) = FetchPlanner(rest_s=0.5).plan([buffer], leader_of, now_s)
        assert plan.broker == broker
    buffer.seek(Offset(3))
    assert buffer.preferred is None


def test_records_that_were_not_given_out_come_again() -> None:
    buffer = buffer_at(0)
    buffer.add(memoryview(batch(0, 5)))
    taken = buffer.take(4)
    buffer.take_back(taken[1:])
    assert buffer.position == 1
    assert buffer.held_records == 4
    assert [record.offset for record in buffer.take(9)] == [1, 2, 3, 4]


def test_damage_does_not_swallow_what_lies_before_it() -> None:
    buffer = buffer_at(0)
    broken = bytearray(batch(2, 1))
    broken[-1] ^= 1
    buffer.add(memoryview(batch(0, 2) + broken))
    assert [record.offset for record in buffer.take(9)] == [0, 1]
    with pytest.raises(BrokerError):
        buffer.take(9)


def in_transaction(first: int, producer: int, *, transactional: bool = True) -> bytes:
    records = [Record(first, 5000, None, b"v", ())]
    producer_id = ProducerId(producer)
    return bytes(
        build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional)
    )


def ending(offset: int, producer: int, kind: MarkerType) -> bytes:
    marker = Marker(kind, 0)
    producer_id, at = ProducerId(producer), Offset(offset)
    return bytes(build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=5000, offset=at))


def test_of_interleaved_transactions_only_the_aborted_are_left_out() -> None:
    log = [
        in_transaction(0, 1),  # aborted at 4
        in_transaction(1, 2),  # committed at 3
        in_transaction(2, 1, transactional=False),
        ending(3, 2, MarkerType.COMMIT),
        ending(4, 1, MarkerType.ABORT),
        in_transaction(5, 1),  # committed at 6
        ending(6, 1, MarkerType.COMMIT),
        in_transaction(7, 2),  # aborted at 8
        ending(8, 2, MarkerType.ABORT),
    ]
    buffer = buffer_at(0)
    buffer.add(memoryview(b"".join(log)), [(2, 7), (1, 0)])
    assert [record.offset for record in buffer.take(99)] == [1, 2, 5]
    assert buffer.position == 9


def test_an_answer_of_nothing_but_aborted_records_moves_the_position() -> None:
    buffer = buffer_at(0)
    assert buffer.add(memoryview(in_transaction(0, 1) + in_transaction(1, 1)), [(1, 0)])
    assert not buffer.waiting
    assert (buffer.position, buffer.fetch_offset) == (2, 2)
    assert buffer.add(memoryview(in_transaction(2, 1) + ending(3, 1, MarkerType.ABORT)), [(1, 0)])
    assert buffer.position == 4
