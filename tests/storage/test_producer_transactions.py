"""Transactions as a partition knows them: what opens and ends them, what is refused, what holds readers back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from storage_cases import NOW_MS, TOPIC_ID, TP, Disk
from transaction_cases import ABORT, COMMIT, end, outcome, remembered, stored, write

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.control import MARKER_BYTES, Marker, MarkerType, build_marker
from tidelog.storage.aborted import AbortedTransaction
from tidelog.storage.transactions import NOTHING_UNSTABLE, CompletedTransaction, Transactions
from tidelog.types import ProducerId

if TYPE_CHECKING:
    from tidelog.storage.log import Log

DAY_MS = 24 * 60 * 60 * 1000


def refusal(log: Log, producer_id: int, sequence: int, **options: object) -> ErrorCode:
    end_offset = log.log_end_offset
    with pytest.raises(BrokerError) as refused:
        write(log, producer_id, sequence, **options)  # type: ignore[arg-type]  # as the caller has them
    assert log.log_end_offset == end_offset
    return refused.value.code


def marker_refusal(log: Log, producer_id: int, marker: Marker, *, epoch: int, version: int) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        end(log, producer_id, marker, epoch=epoch, version=version)
    return refused.value.code


def last_stable_offset(log: Log, high_watermark: int) -> int:
    log.producers.transactions.settle(high_watermark)
    return min(log.producers.transactions.first_unstable_offset, high_watermark)


# -- what holds readers back --------------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset_at_its_first_record(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 1, 0, 3, transactional=False)
    assert last_stable_offset(log, 3) == 3
    write(log, 7, 0, 2)
    write(log, 7, 2, 2)
    assert last_stable_offset(log, 7) == 3
    assert last_stable_offset(log, 2) == 2, "never beyond the high watermark"


def test_an_ended_transaction_holds_it_until_its_marker_is_safe(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0, 2)
    assert end(log, 7) == 2
    assert last_stable_offset(log, 2) == 0
    assert last_stable_offset(log, 3) == 3


def test_the_oldest_of_several_open_ones_counts(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 1, 0)
    write(log, 2, 0)
    write(log, 3, 0)
    end(log, 2)
    assert last_stable_offset(log, 4) == 0
    end(log, 1, ABORT)
    assert last_stable_offset(log, 5) == 2
    end(log, 3)
    assert last_stable_offset(log, 6) == 6


def test_transactions_are_told_apart_by_their_first_offsets() -> None:
    transactions = Transactions()
    for first in (4, 0, 9):
        transactions.begin(first)
    assert transactions.first_unstable_offset == 0
    transactions.end(CompletedTransaction(1, 0, 20, aborted=False))
    assert transactions.first_open_offset(otherwise=99) == 4
    transactions.settle(20)
    assert transactions.first_unstable_offset == 0
    transactions.settle(21)
    assert transactions.first_unstable_offset == 4
    transactions.end(CompletedTransaction(1, 4, 21, aborted=False))
    transactions.end(CompletedTransaction(1, 9, 22, aborted=True))
    transactions.settle(23)
    assert transactions.first_unstable_offset == NOTHING_UNSTABLE
    assert len(transactions) == 0


# -- markers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 2**15 - 1])
@pytest.mark.parametrize("coordinator_epoch", [0, 2**31 - 1])
def test_every_marker_has_the_same_size(epoch: int, coordinator_epoch: int) -> None:
    for kind in MarkerType:
        marker = Marker(kind, coordinator_epoch)
        batch = build_marker(marker, producer_id=ProducerId(2**62), producer_epoch=epoch, timestamp_ms=NOW_MS)
        assert len(batch) == MARKER_BYTES


def test_a_marker_of_an_older_coordinator_is_fenced(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0)
    end(log, 7, Marker(MarkerType.COMMIT, 5))
    write(log, 7, 1)
    older = Marker(MarkerType.ABORT, 4)
    assert marker_refusal(log, 7, older, epoch=0, version=0) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(log, 7, Marker(MarkerType.COMMIT, 5))


def test_a_marker_of_an_older_epoch_is_fenced(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0, epoch=3)
    assert marker_refusal(log, 7, ABORT, epoch=2, version=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_may_come_again_and_changes_nothing(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0)
    end(log, 7, ABORT, epoch=1, version=2)
    end(log, 7, ABORT, epoch=1, version=2)
    assert log.aborted_transactions(0, 10) == [AbortedTransaction(7, 0)]
    assert last_stable_offset(log, 3) == 3


def test_a_late_marker_does_not_end_the_next_transaction(disk: Disk) -> None:
    """With an epoch per transaction, the marker of one has the epoch that the next one's records have."""
    log = disk.open_log()
    write(log, 7, 0)
    end(log, 7, ABORT, epoch=1, version=2)
    write(log, 7, 0, epoch=1)
    assert marker_refusal(log, 7, ABORT, epoch=1, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, 7, epoch=2, version=2) == 3
    assert log.aborted_transactions(0, 10) == [AbortedTransaction(7, 0)]


def test_a_bumped_epoch_in_the_marker_fences_what_is_still_on_its_way(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0)
    end(log, 7, epoch=1, version=2)
    assert refusal(log, 7, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 7, 0) is ErrorCode.INVALID_PRODUCER_EPOCH, "not even as a repeat"
    assert write(log, 7, 0, epoch=1).base_offset == 2


def test_without_an_epoch_per_transaction_sequences_go_on(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0, 3)
    end(log, 7)
    assert write(log, 7, 0, 3).duplicate
    assert refusal(log, 7, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 7, 3).base_offset == 4


def test_a_marker_for_an_unknown_producer_is_taken_and_aborts_nothing(disk: Disk) -> None:
    log = disk.open_log()
    assert end(log, 7, ABORT, epoch=4) == 0
    assert log.aborted_transactions(0, 10) == []
    assert last_stable_offset(log, 1) == 1
    assert refusal(log, 7, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_writing_outside_of_an_open_transaction_is_refused(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0)
    assert refusal(log, 7, 1, transactional=False) is ErrorCode.INVALID_TXN_STATE
    end(log, 7)
    write(log, 7, 1, transactional=False)


def test_a_coordinators_records_have_no_sequence(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, -1, epoch=2)
    write(log, 7, -1, epoch=2)
    assert refusal(log, 7, -1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert last_stable_offset(log, 2) == 0
    end(log, 7, ABORT, epoch=2)
    assert log.aborted_transactions(0, 10) == [AbortedTransaction(7, 0)]


# -- verification -------------------------------------------------------------------------------------------------


def test_a_transaction_begins_only_with_a_guard(disk: Disk) -> None:
    log = disk.open_log()
    assert refusal(log, 7, 0, guard=None) is ErrorCode.INVALID_TXN_STATE
    guard = log.producers.verification(7, 0, 0, NOW_MS)
    assert guard is not None
    write(log, 7, 0, guard=guard)
    assert log.producers.verification(7, 0, 1, NOW_MS) is None
    write(log, 7, 1, guard=None)
    write(log, 7, 2, guard=guard)


def test_a_marker_voids_the_guard(disk: Disk) -> None:
    log = disk.open_log()
    guard = log.producers.verification(7, 0, 0, NOW_MS)
    end(log, 7, ABORT)
    assert refusal(log, 7, 0, guard=guard) is ErrorCode.INVALID_TXN_STATE
    later = log.producers.verification(7, 0, 0, NOW_MS)
    assert later is not guard
    assert refusal(log, 7, 0, guard=guard) is ErrorCode.INVALID_TXN_STATE, "a late answer is not for this question"
    write(log, 7, 0, guard=later)


def test_the_end_of_a_transaction_leaves_no_guard_behind(disk: Disk) -> None:
    log = disk.open_log()
    guard = log.producers.verification(7, 0, 0, NOW_MS)
    write(log, 7, 0, guard=guard)
    end(log, 7)
    assert refusal(log, 7, 1, guard=guard) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, 7, 1, guard=None) is ErrorCode.INVALID_TXN_STATE


def test_a_newer_epoch_voids_the_guard(disk: Disk) -> None:
    log = disk.open_log()
    guard = log.producers.verification(7, 0, 0, NOW_MS)
    newer = log.producers.verification(7, 1, 0, NOW_MS)
    assert refusal(log, 7, 0, guard=guard) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, 7, 0, guard=newer) is ErrorCode.INVALID_TXN_STATE
    write(log, 7, 0, epoch=1, guard=newer)


def test_those_who_wait_for_the_same_answer_share_a_guard_and_go_in_order(disk: Disk) -> None:
    log = disk.open_log()
    guard = log.producers.verification(7, 0, 5, NOW_MS)
    assert log.producers.verification(7, 0, 3, NOW_MS) is guard
    assert refusal(log, 7, 5, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, 7, 3, 2, guard=guard)
    write(log, 7, 5, guard=guard)


def test_guards_that_nobody_used_are_forgotten(disk: Disk) -> None:
    log = disk.open_log()
    guard = log.producers.verification(7, 0, 0, NOW_MS)
    log.producers.expire(NOW_MS + DAY_MS - 1, DAY_MS)
    assert log.producers.verification(7, 0, 0, NOW_MS) is guard
    log.producers.expire(NOW_MS + DAY_MS, DAY_MS)
    assert log.producers.verification(7, 0, 0, NOW_MS) is not guard


def test_a_guard_does_not_outlive_the_log_it_was_taken_from(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 1, 0, 2, transactional=False)
    guard = log.producers.verification(7, 0, 0, NOW_MS)
    log.truncate_to(1)
    assert refusal(log, 7, 0, guard=guard) is ErrorCode.INVALID_TXN_STATE


# -- kept ---------------------------------------------------------------------------------------------------------


def test_an_open_transaction_is_never_forgotten(disk: Disk) -> None:
    log = disk.open_log()
    write(log, 7, 0)
    assert log.expire_producers(NOW_MS + 10 * DAY_MS, DAY_MS) == 0
    end(log, 7)
    assert log.expire_producers(NOW_MS + 10 * DAY_MS, DAY_MS) == 1


@pytest.mark.parametrize("rolled", [False, True])
def test_a_restart_finds_open_and_aborted_transactions_again(disk: Disk, rolled: bool) -> None:
    store = disk.open_store()
    log = store.create(TP, TOPIC_ID, TopicConfig())
    write(log, 1, 0, 2)
    write(log, 2, 0, 2, epoch=3)
    end(log, 1, Marker(MarkerType.ABORT, 9))
    if rolled:
        log.roll(NOW_MS)
        write(log, 1, 2)
    expected = outcome(stored(log))
    store.close()
    again = disk.open_log()
    assert remembered(again.producers) == expected[:3]
    assert again.aborted_transactions(0, 10) == [AbortedTransaction(1, 0)]
    assert last_stable_offset(again, again.log_end_offset) == 2
    write(again, 2, 2, epoch=3, guard=None)
    end(again, 2, COMMIT, epoch=3)
