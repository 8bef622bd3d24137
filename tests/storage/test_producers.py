"""Idempotent producers: sequences, repeats, gaps, epochs, expiry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_cases import NOW_MS, Disk, append, batch_of, produce

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.header import BatchHeader, peek
from tidelog.records.record import Record
from tidelog.storage.producers import DAY_MS, Producer, Producers, is_expired
from tidelog.types import ProducerId

MAX = 2**31 - 1


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return peek(batch_of([b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence))


def accept(producers: Producers, sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0) -> None:
    batch = header(sequence, count, epoch=epoch)
    assert producers.check(batch) is None
    producers.record(batch, offset, NOW_MS)


def refusal(producers: Producers, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        producers.check(batch)
    return refused.value.code


@pytest.mark.parametrize("first", [0, 5, MAX])
def test_an_unknown_producer_may_start_anywhere(first: int) -> None:
    assert Producers().check(header(first)) is None


def test_sequences_must_follow_each_other() -> None:
    producers = Producers()
    accept(producers, 0, 3)
    accept(producers, 3, 2)
    assert refusal(producers, header(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(producers, header(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(producers, header(3, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a part of a batch is no repeat"
    accept(producers, 5)


def test_each_of_the_last_five_batches_is_recognised_and_no_older_one() -> None:
    producers = Producers()
    for at in range(8):
        accept(producers, at * 2, 2, offset=100 + at * 2)
    for at in range(3, 8):
        seen = producers.check(header(at * 2, 2))
        assert seen is not None
        assert (seen.first_offset, seen.last_offset) == (100 + at * 2, 101 + at * 2)
    for at in range(3):
        assert refusal(producers, header(at * 2, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero_also_within_a_batch() -> None:
    producers = Producers()
    accept(producers, MAX - 1, 2, offset=0)
    accept(producers, 0, 1, offset=2)
    within = Producers()
    accept(within, MAX - 1, 5, offset=0)
    seen = within.check(header(MAX - 1, 5))
    assert seen is not None
    assert (seen.first_sequence, seen.last_sequence) == (MAX - 1, 2)
    accept(within, 3, offset=5)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    producers = Producers()
    accept(producers, 0, 3)
    assert refusal(producers, header(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    accept(producers, 0, epoch=1, offset=3)
    assert refusal(producers, header(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(producers, header(0, 3, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH, "not even as a repeat"
    accept(producers, 1, epoch=1, offset=4)


def test_a_marker_raises_the_epoch_but_takes_no_sequence() -> None:
    producers = Producers()
    accept(producers, 0, 3)
    marker = build_batch(
        [Record(0, NOW_MS, b"", b"")], producer_id=ProducerId(7), producer_epoch=1, transactional=True, control=True
    )
    producers.record(peek(marker), 3, NOW_MS)
    assert refusal(producers, header(3, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    accept(producers, 0, epoch=1, offset=4)


def test_producers_do_not_meet() -> None:
    producers = Producers()
    accept(producers, 0)
    assert producers.check(header(40, producer_id=8)) is None


@given(st.integers(0, 10 * DAY_MS), st.integers(0, 10 * DAY_MS), st.integers(1, 2 * DAY_MS))
def test_expiry_counts_from_the_last_append(last_seen_ms: int, now_ms: int, expiration_ms: int) -> None:
    producer = Producer(0)
    producer.last_seen_ms = last_seen_ms
    assert is_expired(producer, now_ms, expiration_ms) == (now_ms >= last_seen_ms + expiration_ms)
    producer.transaction_first_offset = 3
    assert not is_expired(producer, now_ms, expiration_ms), "an open transaction keeps its producer"


def test_expired_producers_are_forgotten_and_may_start_anywhere() -> None:
    producers = Producers()
    accept(producers, 0)
    assert producers.expire(NOW_MS + DAY_MS - 1, DAY_MS) == 0
    assert producers.expire(NOW_MS + DAY_MS, DAY_MS) == 1
    assert len(producers) == 0
    accept(producers, 17)


# -- through the log ----------------------------------------------------------------------------------------------


def test_a_repeat_is_answered_with_the_original_offsets_and_not_stored(disk: Disk) -> None:
    log = disk.open_log()
    first = produce(log, 0, 3)
    produce(log, 3, 2)
    size, end = log.size_bytes, log.log_end_offset
    again = produce(log, 0, 3)
    assert again.duplicate
    assert again[:3] == first[:3]
    assert (log.size_bytes, log.log_end_offset) == (size, end)


def test_a_repeat_is_answered_with_the_original_append_time(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(message_timestamp_type="LogAppendTime"))
    fields = {"producer_id": 7, "epoch": 0, "sequence": 0}
    first = append(log, batch_of([b"a"], **fields), now_ms=NOW_MS)  # type: ignore[arg-type]  # plain numbers
    again = append(log, batch_of([b"a"], **fields), now_ms=NOW_MS + 5000)  # type: ignore[arg-type]  # plain numbers
    assert again.duplicate
    assert again.append_time_ms == first.append_time_ms == NOW_MS


def test_a_gap_writes_nothing(disk: Disk) -> None:
    log = disk.open_log()
    produce(log, 0)
    with pytest.raises(BrokerError) as refused:
        produce(log, 2)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1
    produce(log, 1)


def test_a_refused_write_is_not_remembered(disk: Disk) -> None:
    log = disk.open_log(TopicConfig(segment_bytes=200))
    with pytest.raises(BrokerError) as refused:
        append(log, batch_of([b"x" * 300], producer_id=7, epoch=0, sequence=0))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert not produce(log, 0).duplicate


def test_the_timestamps_a_producer_makes_up_do_not_expire_it(disk: Disk) -> None:
    """Loading last year's events must not cost the window that keeps them from being stored twice."""
    log = disk.open_log()
    append(log, batch_of([b"old"], timestamp=1000, producer_id=7, epoch=0, sequence=0), now_ms=NOW_MS)
    assert log.expire_producers(NOW_MS + 1000, DAY_MS) == 0
    assert produce(log, 0).duplicate
    assert log.expire_producers(NOW_MS + DAY_MS, DAY_MS) == 1
