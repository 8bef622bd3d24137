"""The ledger notices every way in which logs can break a promise."""

from __future__ import annotations

import pytest

from tidelog.testing.sim.ledger import BatchId, Mirror, PartitionLedger, Violation
from tidelog.types import TopicPartition

FIRST, SECOND, THIRD = BatchId(0, 3, 1, 11), BatchId(3, 5, 1, 12), BatchId(5, 6, 2, 13)


def ledger(*promised: BatchId) -> PartitionLedger:
    found = PartitionLedger(TopicPartition("t", 0))
    found.promise(1, 1, promised)
    return found


def mirror(*batches: BatchId) -> Mirror:
    found = Mirror()
    found.batches = list(batches)
    found.end_offset = batches[-1].next_offset if batches else 0
    return found


def test_one_leader_per_epoch() -> None:
    book = ledger()
    book.leads(1, 4)
    book.leads(1, 4)
    book.leads(2, 5)
    with pytest.raises(Violation, match="both lead"):
        book.leads(2, 4)


def test_an_epoch_gives_an_offset_away_once() -> None:
    book = ledger()
    book.wrote(1, FIRST, None)
    book.wrote(2, FIRST, None)
    book.wrote(2, FIRST._replace(epoch=2, crc=99), None)
    with pytest.raises(Violation, match="has put"):
        book.wrote(2, FIRST._replace(crc=99), None)


def test_epochs_and_offsets_of_a_log_go_up() -> None:
    book = ledger()
    with pytest.raises(Violation, match="after"):
        book.wrote(1, SECOND, THIRD)
    with pytest.raises(Violation, match="after"):
        book.wrote(1, BatchId(6, 7, 1, 5), THIRD)


def test_what_is_promised_stays_so() -> None:
    book = ledger(FIRST, SECOND)
    assert book.end_offset == 5
    with pytest.raises(Violation, match="promised before"):
        book.promise(2, 1, [SECOND._replace(crc=99)])
    assert book.find(4) == SECOND
    assert book.find(5) is None
    assert book.is_promised(FIRST)
    assert not book.is_promised(THIRD)


def test_what_a_replica_lacks_is_named() -> None:
    book = ledger(FIRST, SECOND)
    assert book.missing_in(mirror(FIRST, SECOND, THIRD)) is None
    assert "is missing" in str(book.missing_in(mirror(FIRST)))
    assert "in the place of" in str(book.missing_in(mirror(FIRST, SECOND._replace(crc=99))))
    assert book.missing_in(mirror(FIRST), upto=3) is None
    deleted = mirror(SECOND)
    deleted.start_offset = 3
    assert book.missing_in(deleted) is None


def test_a_mirror_is_cut_at_batches() -> None:
    log = mirror(FIRST, SECOND, THIRD)
    assert log.cut(4) == [SECOND, THIRD]
    assert log.end_offset == 3
    assert log.cut(0) == [FIRST]
    assert log.end_offset == 0


def test_a_leader_must_have_what_was_promised_before_its_epoch() -> None:
    book = ledger(FIRST, SECOND)
    book.promise(2, 2, [THIRD])
    assert book.promised_before(1) == 0
    assert book.promised_before(2) == 5
    assert book.promised_before(3) == 6
