"""Partitions with followers: what is safe, what is refused, what changes with a role."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest
from replica_cases import (
    ORDERS,
    TIME_MAX_MS,
    A,
    B,
    C,
    ManualClock,
    Node,
    batch_epochs,
    catch_up,
    content,
    copy,
    role,
)

from tidelog.config.topic import TopicConfig
from tidelog.errors import BrokerError, ErrorCode
from tidelog.replication.waiting import FetchWait, FollowerFetches
from tidelog.storage.epochs import EpochEnd, EpochStart
from tidelog.testing.forgetful_fs import Forget
from tidelog.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replication.partition import Partition
    from tidelog.types import TopicPartition

T = TypeVar("T")
MIN_TWO = TopicConfig(min_insync_replicas=2)
PATIENCE_S = 30.0


class Trio:
    """Three brokers with one partition."""

    def __init__(self, config: TopicConfig | None = None) -> None:
        self.clock = ManualClock()
        self.a, self.b, self.c = (Node(each, self.clock, config) for each in (A, B, C))
        self.nodes = {A: self.a, B: self.b, C: self.c}

    def elect(self, leader: int, epoch: int, isr: tuple[int, ...] = (A, B, C)) -> None:
        for node in self.nodes.values():
            node.take(role(leader, epoch, isr))

    def settle(self, leader: Node, *followers: Node) -> None:
        """Twice: the second fetch tells the leader that the first one's records have arrived."""
        for _ in range(2):
            for each in followers:
                catch_up(each, leader)


def with_trio(story: Callable[[Trio], T], config: TopicConfig | None = None) -> T:
    async def main() -> T:
        return story(Trio(config))

    return asyncio.run(main())


def refusal(step: Callable[[], object]) -> ErrorCode:
    with pytest.raises(BrokerError) as error:
        step()
    return error.value.code


def test_records_are_safe_when_all_in_sync_replicas_have_them() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        last = trio.a.append(b"x")
        wait = trio.a.await_safe(last)
        catch_up(trio.b, trio.a)
        copy(trio.c, trio.a)
        assert wait.outstanding
        assert trio.a.partition().high_watermark == 0
        copy(trio.c, trio.a)
        assert not wait.outstanding
        assert not wait.failures
        assert trio.a.partition().high_watermark == 1

    with_trio(story)


def test_a_follower_learns_the_high_watermark_one_fetch_later_and_never_beyond_its_own_end() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A,))
        trio.a.append(b"x" * 100)
        trio.a.append(b"y" * 100)
        copy(trio.b, trio.a, max_bytes=1)
        assert trio.a.partition().high_watermark == 2
        assert trio.b.partition().high_watermark == 1
        copy(trio.b, trio.a, max_bytes=1)
        assert trio.b.partition().high_watermark == 2

    with_trio(story)


def test_acks_of_one_do_not_wait_for_followers() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        wait = trio.a.await_safe(trio.a.append(b"x", all_replicas=False), all_replicas=False)
        assert not wait.outstanding
        assert trio.a.partition().high_watermark == 0

    with_trio(story)


def test_with_fsync_before_ack_followers_and_leader_wait_for_their_disks() -> None:
    async def main() -> None:
        trio = Trio(TopicConfig(tidelog_fsync_before_ack="true"))
        trio.elect(A, 1, (A, B))
        last = trio.a.append(b"x")
        only_here = trio.a.await_safe(last, all_replicas=False)
        everywhere = trio.a.await_safe(last)
        assert only_here.outstanding
        catch_up(trio.b, trio.a)
        assert trio.a.partition().high_watermark == 0, "the leader's own disk has it not"
        await reached(lambda: not only_here.outstanding)
        assert not everywhere.outstanding
        assert trio.a.partition().high_watermark == 1
        follower_wait = trio.b.await_safe(0)
        assert follower_wait.outstanding, "a follower's high watermark is its leader's business"

    asyncio.run(main())


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the condition is set by no event
            await asyncio.sleep(0)


def test_too_few_in_sync_refuse_before_anything_is_written() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A,))
        assert refusal(lambda: trio.a.append(b"x")) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert trio.a.log.log_end_offset == 0
        assert trio.a.append(b"x", all_replicas=False) == 0

    with_trio(story, MIN_TWO)


def test_too_few_in_sync_after_the_append_are_told_apart() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A, B))
        wait = trio.a.await_safe(trio.a.append(b"x"))
        trio.clock.passed_ms += TIME_MAX_MS + 1
        trio.a.replicas.check_lag()
        assert trio.a.proposals.latest == (A,)
        assert wait.outstanding, "a proposal decides nothing"
        trio.a.partition().isr_confirmed(1, (A,), 1)
        assert wait.failures[ORDERS].code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert trio.a.partition().high_watermark == 1

    with_trio(story, MIN_TWO)


def test_while_growth_is_proposed_the_newcomer_is_waited_for_but_does_not_count() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A,))
        trio.a.append(b"x", all_replicas=False)
        catch_up(trio.b, trio.a)
        assert trio.a.proposals.made == [(ORDERS, (A, B))]
        assert refusal(lambda: trio.a.append(b"y")) is ErrorCode.NOT_ENOUGH_REPLICAS
        trio.a.append(b"y", all_replicas=False)
        assert trio.a.partition().high_watermark == 1
        trio.a.partition().isr_confirmed(1, (A, B), 1)
        wait = trio.a.await_safe(trio.a.append(b"z"))
        catch_up(trio.b, trio.a)
        assert not wait.outstanding
        assert not wait.failures

    with_trio(story, MIN_TWO)


def test_a_refused_proposal_can_be_made_again() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A,))
        copy(trio.b, trio.a)
        copy(trio.b, trio.a)
        assert len(trio.a.proposals.made) == 1
        trio.a.partition().isr_refused(1)
        copy(trio.b, trio.a)
        assert len(trio.a.proposals.made) == 2

    with_trio(story)


def test_answers_of_another_reign_or_of_an_older_state_do_not_count() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A, B))
        partition = trio.a.partition()
        trio.a.take(role(A, 1, (A, B, C), partition_epoch=5))
        partition.isr_confirmed(1, (A,), 4)
        partition.isr_confirmed(0, (A,), 9)
        partition.isr_refused(0)
        assert partition.isr == (A, B, C)
        partition.isr_confirmed(1, (A,), 6)
        assert [*partition.isr, partition.partition_epoch] == [A, 6]

    with_trio(story)


def test_those_who_wait_are_told_at_once_when_leadership_is_lost() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        wait = trio.a.await_safe(trio.a.append(b"x"))
        woken: list[str] = []
        consumer, follower = FetchWait(9, lambda: woken.append("consumer")), FetchWait(9, lambda: woken.append("end"))
        trio.a.partition().watch(consumer)
        trio.a.partition().watch_end(follower)
        trio.a.take(role(B, 2))
        assert wait.failures[ORDERS].code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert sorted(woken) == ["consumer", "end"]
        assert refusal(lambda: trio.a.append(b"y")) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_trio(story)


def test_a_leader_that_is_elected_again_keeps_those_who_wait() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        wait = trio.a.await_safe(trio.a.append(b"x"))
        trio.elect(A, 2, (A, B))
        catch_up(trio.b, trio.a)
        assert not wait.outstanding
        assert not wait.failures

    with_trio(story)


def test_followers_that_wait_hear_of_an_append_at_once_and_consumers_when_it_is_safe() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A, B))
        woken: list[str] = []
        trio.a.partition().watch(FetchWait(1, lambda: woken.append("consumer")))
        trio.a.partition().watch_end(FetchWait(1, lambda: woken.append("follower")))
        trio.a.append(b"x")
        assert woken == ["follower"]
        catch_up(trio.b, trio.a)
        assert woken == ["follower", "consumer"]

    with_trio(story)


def test_a_consumer_of_a_new_leader_hears_of_records_that_become_safe_though_nobody_counted_their_bytes() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"x")
        copy(trio.b, trio.a)
        trio.elect(B, 2, (B,))
        woken: list[str] = []
        trio.b.take(role(B, 3, (B, C)))
        trio.b.append(b"y")
        trio.b.partition().watch(FetchWait(1, lambda: woken.append("consumer")))
        catch_up(trio.c, trio.b)
        assert woken == ["consumer"]

    with_trio(story)


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "taken"),
    [(4, 9, False), (5, 2, False), (5, 3, False), (5, 4, True), (6, 0, True)],
    ids=["older reign", "older state", "the same", "newer state", "newer reign"],
)
def test_only_newer_roles_are_taken(leader_epoch: int, partition_epoch: int, taken: bool) -> None:
    def story(trio: Trio) -> None:
        trio.a.take(role(A, 5, partition_epoch=3))
        assert trio.a.take(role(B, leader_epoch, partition_epoch=partition_epoch)) is taken
        assert trio.a.partition().leader == (B if taken else A)

    with_trio(story)


def test_a_role_from_before_what_the_log_has_seen_is_not_taken() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 5, (A,))
        trio.a.append(b"x")
        trio.a.crash()
        assert not trio.a.take(role(A, 4))
        assert trio.a.take(role(A, 6))

    with_trio(story)


def test_a_newer_state_of_the_same_reign_keeps_what_is_known_of_followers() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A, B))
        trio.a.append(b"x")
        catch_up(trio.b, trio.a)
        trio.a.take(role(A, 1, (A, B), partition_epoch=1))
        trio.a.append(b"y")
        catch_up(trio.b, trio.a)
        assert trio.a.partition().high_watermark == 2

    with_trio(story)


@pytest.mark.parametrize(
    ("check", "claimed", "code"),
    [
        ("check_leader", 4, ErrorCode.FENCED_LEADER_EPOCH),
        ("check_leader", 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("check_replica", 4, ErrorCode.FENCED_LEADER_EPOCH),
        ("check_replica", 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epochs_of_requests_are_checked(check: str, claimed: int, code: ErrorCode) -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 5)
        partition = (trio.a if check == "check_leader" else trio.b).partition()
        getattr(partition, check)(5)
        assert refusal(lambda: getattr(partition, check)(claimed)) is code

    with_trio(story)


def test_consumers_may_read_from_a_follower_but_not_write_to_it() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"x")
        trio.settle(trio.a, trio.b, trio.c)
        follower = trio.b.partition()
        follower.check_replica(1)
        assert follower.high_watermark == 1
        assert follower.read(0, 1 << 20, min_one=True, committed_only=False) is not None
        assert refusal(follower.check_leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refusal(lambda: follower.fetched(C, 0, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refusal(lambda: follower.follower(C)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_trio(story)


# --- logs that diverge ---


def test_a_leader_that_comes_back_cuts_off_what_nobody_else_has() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"everyone has this")
        trio.settle(trio.a, trio.b, trio.c)
        trio.a.append(b"only a has this")
        trio.b.take(role(B, 2, (B, C)))
        trio.c.take(role(B, 2, (B, C)))
        trio.b.append(b"b went on")
        trio.settle(trio.b, trio.c)
        trio.a.take(role(B, 2, (B, C)))
        trio.settle(trio.b, trio.a, trio.c)
        assert content(trio.a.log) == content(trio.b.log) == content(trio.c.log)
        assert batch_epochs(trio.a.log) == [(0, 1), (1, 2)]

    with_trio(story)


def test_a_chain_of_reigns_is_walked_back_epoch_by_epoch() -> None:
    """Two logs that took turns to diverge: neither knows the other's epochs."""

    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"common")
        trio.settle(trio.a, trio.b, trio.c)
        for epoch in (2, 4, 6):
            trio.a.take(role(A, epoch, (A,)))
            trio.a.append(b"a%d" % epoch)
            trio.b.take(role(B, epoch + 1, (B,)))
            trio.b.append(b"b%d" % epoch, b"and more")
        trio.a.take(role(B, 9, (B,)))
        trio.b.take(role(B, 9, (B,)))
        trio.settle(trio.b, trio.a)
        assert content(trio.a.log) == content(trio.b.log)
        assert batch_epochs(trio.a.log) == [(0, 1), (1, 3), (3, 5), (5, 7)]
        assert trio.a.log.epochs.starts == tuple(EpochStart(*each) for each in [(1, 0), (3, 1), (5, 3), (7, 5)])

    with_trio(story)


def test_a_reign_that_wrote_nothing_leaves_no_trace_in_the_epochs_of_a_follower() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"x")
        trio.settle(trio.a, trio.b, trio.c)
        trio.a.take(role(A, 7, (A,)))
        trio.b.take(role(B, 5, (B,)))
        trio.b.append(b"y")
        trio.a.take(role(B, 8, (B,)))
        trio.b.take(role(B, 8, (B,)))
        trio.settle(trio.b, trio.a)
        assert trio.a.log.epochs.starts == (EpochStart(1, 0), EpochStart(5, 1))
        assert content(trio.a.log) == content(trio.b.log)

    with_trio(story)


def test_a_new_leader_that_wrote_nothing_yet_still_finds_where_an_unknown_epoch_ended() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"x")
        trio.settle(trio.a, trio.b, trio.c)
        trio.a.take(role(A, 2, (A,)))
        trio.a.append(b"only here")
        trio.b.take(role(B, 3, (B,)))
        trio.a.take(role(B, 3, (B,)))
        assert trio.b.partition().divergence(2, 2) == EpochEnd(1, 1)
        trio.settle(trio.b, trio.a)
        assert trio.a.log.log_end_offset == 1

    with_trio(story)


def test_a_follower_is_not_cut_back_by_its_high_watermark() -> None:
    """What all have, but a follower does not know to be safe yet, survives two changes of leader (KIP-101)."""

    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A, B))
        trio.a.append(b"acknowledged")
        copy(trio.b, trio.a)
        trio.a.partition().fetched(B, 1, 0)
        assert trio.a.partition().high_watermark == 1
        assert trio.b.partition().high_watermark == 0
        trio.b.checkpoint()
        trio.b.crash(Forget.NOTHING)
        trio.b.take(role(A, 2, (A, B)))
        assert trio.b.log.log_end_offset == 1
        trio.b.take(role(B, 3, (B,)))
        assert trio.b.partition().high_watermark == 1

    with_trio(story)


def test_an_unclean_leader_makes_the_others_lose_what_it_lacks_and_the_high_watermark_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A, B))
        trio.a.append(b"x")
        trio.a.append(b"y")
        trio.settle(trio.a, trio.b)
        trio.elect(C, 2, (C,))
        trio.c.append(b"other")
        trio.settle(trio.c, trio.a)
        assert content(trio.a.log) == content(trio.c.log)
        assert trio.a.partition().high_watermark == 1

    with_trio(story)
    assert "below the high watermark" in caplog.text


@pytest.mark.parametrize(
    "answer", [EpochEnd(9, 1), EpochEnd(-1, -1), EpochEnd(1, 5)], ids=["unasked epoch", "unknown", "no difference"]
)
def test_an_answer_that_makes_no_sense_cuts_nothing(answer: EpochEnd) -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"x", b"y")
        trio.settle(trio.a, trio.b)
        assert refusal(lambda: trio.b.partition().cut_back(answer)) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert trio.b.log.log_end_offset == 2

    with_trio(story)


# --- starting again ---


def test_after_a_restart_the_high_watermark_is_what_was_written_down_and_no_more_than_there_is() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        for each in (b"x", b"y", b"z"):
            trio.a.append(each)
        trio.settle(trio.a, trio.b, trio.c)
        trio.b.checkpoint()
        trio.b.crash(Forget.EVERYTHING)
        trio.b.take(role(A, 2))
        partition = trio.b.partition()
        assert partition.high_watermark == partition.log.log_end_offset == 0
        trio.a.take(role(A, 2))
        trio.settle(trio.a, trio.b)
        trio.b.checkpoint()
        trio.a.append(b"not safe yet")
        copy(trio.b, trio.a)
        trio.b.crash(Forget.NOTHING)
        trio.b.take(role(A, 3))
        assert (trio.b.partition().high_watermark, trio.b.log.log_end_offset) == (3, 4)

    with_trio(story)


def test_high_watermarks_are_written_down_again_before_roles_are_known() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A,))
        trio.a.append(b"x")
        trio.a.checkpoint()
        trio.a.crash()
        trio.a.checkpoint()
        trio.a.crash()
        trio.a.take(role(B, 2))
        assert trio.a.partition().high_watermark == 1

    with_trio(story)


def test_a_partition_that_gets_followers_or_loses_them_goes_on() -> None:
    async def main() -> None:
        trio = Trio()
        trio.a.take(role(A, 1, (A,), replicas=(A,)))
        last = trio.a.append(b"x")
        wait = trio.a.await_safe(last)
        assert wait.outstanding, "alone, it waits for the disk"
        trio.a.take(role(A, 2, (A,), replicas=(A, B)))
        assert not wait.outstanding
        trio.b.take(role(A, 2, (A,), replicas=(A, B)))
        trio.settle(trio.a, trio.b)
        trio.a.partition().isr_confirmed(2, (A, B), 1)
        trio.a.append(b"y")
        trio.a.take(role(A, 3, (A,), replicas=(A,)))
        await reached(lambda: trio.a.partition().high_watermark == 2)

    asyncio.run(main())


# --- what the broker keeps of all its partitions ---


class Watcher:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def leads(self, partition: Partition) -> None:
        self.seen.append(f"leads {partition.leader_epoch}")

    def loses(self, partition: Partition) -> None:
        self.seen.append(f"loses {partition.leader_epoch}")


def test_watchers_hear_of_leadership_won_and_lost_and_not_of_what_stays() -> None:
    def story(trio: Trio) -> None:
        watcher = Watcher()
        trio.a.replicas.watchers["orders"] = watcher
        trio.elect(B, 1)
        trio.elect(A, 2)
        trio.elect(A, 3, (A,))
        trio.elect(C, 4)
        trio.elect(A, 5)
        trio.a.replicas.stop(ORDERS, delete=False)
        assert watcher.seen == ["leads 2", "loses 4", "leads 5", "loses 5"]

    with_trio(story)


class Fetching:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def follow(self, partition: Partition) -> None:
        self.seen.append(f"follow {partition.leader}")

    def unfollow(self, topic_partition: TopicPartition) -> None:
        self.seen.append(f"unfollow {topic_partition}")


def test_whoever_fetches_is_told_whom_to_follow() -> None:
    def story(trio: Trio) -> None:
        fetching = trio.a.replicas.following = Fetching()
        trio.elect(B, 1)
        trio.elect(C, 2)
        trio.elect(A, 3)
        trio.a.take(role(-1, 4, (A,)))
        trio.a.replicas.stop(ORDERS, delete=True)
        assert fetching.seen == ["follow 2", "follow 3", *["unfollow orders-0"] * 3]

    with_trio(story)


@pytest.mark.parametrize(
    ("delete", "code"),
    [(True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["deleted", "kept"],
)
def test_a_stopped_replica_lets_go_of_those_who_wait_and_its_log_stays_unless_deleted(
    delete: bool, code: ErrorCode
) -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.append(b"x")
        wait = trio.a.await_safe(0)
        trio.a.replicas.stop(ORDERS, delete=delete)
        assert wait.failures[ORDERS].code is code
        assert refusal(trio.a.partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        trio.a.replicas.knows = lambda _topic, _partition: True
        assert refusal(trio.a.partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        trio.a.take(role(A, 2))
        assert trio.a.log.log_end_offset == (0 if delete else 1)

    with_trio(story)


def test_a_log_without_a_role_can_be_deleted() -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1)
        trio.a.crash()
        trio.a.replicas.stop(ORDERS, delete=True)
        assert ORDERS not in trio.a.store.logs

    with_trio(story)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_was_created_again_does_not_inherit_the_log_of_the_old_one(restarted: bool) -> None:
    def story(trio: Trio) -> None:
        trio.elect(A, 1, (A,))
        wait = trio.a.await_safe(trio.a.append(b"old"))
        if restarted:
            trio.a.log.flush()
            trio.a.checkpoint()
            trio.a.crash()
        assert trio.a.take(replace(role(A, 0, (A,)), topic_id=TopicId(b"another topic id")))
        assert (trio.a.log.log_end_offset, trio.a.partition().high_watermark) == (0, 0)
        assert not wait.outstanding

    with_trio(story)


def test_a_topic_is_known_by_its_id_from_its_first_role_on() -> None:
    def story(trio: Trio) -> None:
        assert trio.a.replicas.name_of(bytes(range(16))) is None
        trio.elect(A, 1)
        assert trio.a.replicas.name_of(bytes(range(16))) == "orders"

    with_trio(story)


def test_fetches_of_followers_do_not_wait_long_after_a_change_of_leader() -> None:
    def story(trio: Trio) -> None:
        fetches = trio.a.replicas.fetches_of(B)
        assert isinstance(fetches, FollowerFetches)
        woken: list[str] = []
        fetches.watch(FetchWait(1, lambda: woken.append("b")))
        assert fetches.patience_ms(0, 500) == 500
        trio.elect(A, 1)
        assert woken == ["b"]
        assert fetches.patience_ms(trio.a.replicas.now_ms(), 500) < 100
        trio.clock.passed_ms += 60_000
        assert fetches.patience_ms(trio.a.replicas.now_ms(), 500) == 500

    with_trio(story)
