"""The last stable offset of replicated partitions: on leaders and followers, over failovers, cuts and deletions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from replica_cases import NOW_MS, A, B, ManualClock, Node, catch_up, copy, role

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.build import build_batch
from tidelog.records.control import Marker, MarkerType
from tidelog.records.header import peek
from tidelog.records.record import Record
from tidelog.replication.stable_readers import StableReaders
from tidelog.replication.waiting import FetchWait
from tidelog.storage.aborted import AbortedTransaction
from tidelog.storage.verification import TRUSTED
from tidelog.types import ProducerId

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.verification import Guard

PRODUCER = 7
COMMIT, ABORT = Marker(MarkerType.COMMIT, 0), Marker(MarkerType.ABORT, 0)


def write(node: Node, sequence: int, count: int = 1, guard: Guard | None = TRUSTED) -> None:
    batch = memoryview(
        build_batch(
            [Record(at, NOW_MS, None, b"v") for at in range(count)],
            producer_id=ProducerId(PRODUCER),
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
    )
    node.partition().append(batch, peek(batch), NOW_MS, all_replicas=True, guard=guard)


def end(node: Node, marker: Marker = COMMIT) -> None:
    node.partition().append_marker(marker, PRODUCER, 0, NOW_MS, transaction_version=0)


def stable(node: Node) -> tuple[int, int]:
    """With the high watermark."""
    return node.partition().last_stable_offset, node.partition().high_watermark


def two(story: Callable[[Node, Node], None]) -> None:
    """A leads, B follows."""

    async def main() -> None:
        clock = ManualClock()
        nodes = [Node(each, clock) for each in (A, B)]
        for node in nodes:
            assert node.take(role(A, 1, (A, B), replicas=(A, B)))
        story(*nodes)

    asyncio.run(main())


def safe(leader: Node, follower: Node) -> None:
    """The follower has everything, and both know it."""
    catch_up(follower, leader)
    copy(follower, leader)


def test_a_marker_counts_when_all_in_sync_replicas_have_it() -> None:
    def story(leader: Node, follower: Node) -> None:
        write(leader, 0, 2)
        safe(leader, follower)
        assert stable(leader) == stable(follower) == (0, 2)
        end(leader)
        assert stable(leader) == (0, 2)
        copy(follower, leader)
        assert stable(follower) == (0, 2), "it has the marker, and does not know who else has"
        safe(leader, follower)
        assert stable(leader) == stable(follower) == (3, 3)

    two(story)


def test_a_follower_knows_what_was_aborted() -> None:
    def story(leader: Node, follower: Node) -> None:
        write(leader, 0, 2)
        end(leader, ABORT)
        safe(leader, follower)
        expected = [AbortedTransaction(PRODUCER, 0)]
        assert leader.log.aborted_transactions(0, 3) == follower.log.aborted_transactions(0, 3) == expected

    two(story)


def test_whoever_leads_next_goes_on_with_the_open_transaction() -> None:
    def story(old: Node, new: Node) -> None:
        write(old, 0, 2)
        safe(old, new)
        end(old)  # which nobody else gets
        assert new.take(role(B, 2, (A, B), replicas=(A, B), partition_epoch=1))
        assert old.take(role(B, 2, (A, B), replicas=(A, B), partition_epoch=1))
        write(new, 2, guard=None)
        assert stable(new)[0] == 0
        safe(new, old)
        assert stable(old) == (0, 3), "the marker that was cut off ended nothing"
        end(new, ABORT)
        safe(new, old)
        assert stable(old) == stable(new) == (4, 4)
        assert old.log.aborted_transactions(0, 4) == [AbortedTransaction(PRODUCER, 0)]

    two(story)


def test_an_answer_that_comes_after_the_reign_is_over_begins_nothing() -> None:
    def story(old: Node, new: Node) -> None:
        guard = old.log.producers.verification(PRODUCER, 0, 0, NOW_MS)
        for node in (old, new):
            assert node.take(role(B, 2, (A, B), replicas=(A, B), partition_epoch=1))
        end(new, ABORT)
        safe(new, old)
        for node in (old, new):
            assert node.take(role(A, 3, (A, B), replicas=(A, B), partition_epoch=2))
        with pytest.raises(BrokerError) as refused:
            write(old, 0, guard=guard)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        assert old.log.log_end_offset == 1

    two(story)


def test_a_crash_keeps_open_transactions_and_who_is_held_back() -> None:
    def story(leader: Node, follower: Node) -> None:
        write(leader, 0, 2)
        safe(leader, follower)
        leader.checkpoint()
        leader.crash()
        assert leader.take(role(A, 2, (A, B), replicas=(A, B), partition_epoch=1))
        assert stable(leader) == (0, 2)

    two(story)


def test_records_may_be_deleted_from_under_a_transaction() -> None:
    def story(leader: Node, follower: Node) -> None:
        write(leader, 0, 4)
        leader.append(b"plain")
        safe(leader, follower)
        assert stable(leader) == (0, 5)
        leader.log.advance_log_start(4)
        assert stable(leader) == (4, 5)
        end(leader)
        safe(leader, follower)
        assert stable(leader) == (6, 6)

    two(story)


def test_readers_are_told_of_bytes_as_they_become_stable() -> None:
    woken: list[str] = []
    readers = StableReaders()
    readers.watch(FetchWait(1, lambda: woken.append("any")), 0, 0)
    readers.watch(FetchWait(500, lambda: woken.append("half")), 0, 0)
    readers.tell(0, 50, 500)
    assert woken == []
    readers.tell(10, 100, 1000)
    assert woken == ["any"]
    readers.tell(100, 100, 1000)
    assert woken == ["any", "half"]


def test_one_that_comes_to_wait_is_not_told_of_what_was_there() -> None:
    woken: list[int] = []
    readers = StableReaders()
    readers.watch(FetchWait(1, lambda: woken.append(1)), 10, 1000)
    readers.tell(10, 10, 1000)
    assert woken == []
    readers.tell(11, 11, 1100)
    assert woken == [1]
