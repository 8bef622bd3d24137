"""One reign: followers come and go, and what is safe stays safe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.errors import BrokerError, ErrorCode
from tidelog.replication.isr import LagBounds
from tidelog.replication.leading import Leading
from tidelog.replication.role import Role
from tidelog.types import TopicId, TopicPartition

ME, B, C, OBSERVER = 1, 2, 3, 4
BOUNDS = LagBounds(1000)
ROLE = Role(TopicPartition("orders", 0), TopicId(bytes(16)), ME, 5, (ME, B), (ME, B, C, OBSERVER), 7, (OBSERVER,))


def reign(role: Role = ROLE, epoch_start: int = 0, now_ms: int = 0, bounds: LagBounds = BOUNDS) -> Leading:
    return Leading(ME, role, epoch_start, now_ms, bounds)


def test_nothing_is_safe_before_all_in_sync_have_shown_themselves() -> None:
    led = reign()
    assert led.safe_end(10) == -1
    led.fetched(B, 4, 10, 0)
    assert led.safe_end(10) == 4


def test_those_out_of_sync_are_not_waited_for() -> None:
    led = reign(replace(ROLE, isr=(ME,)))
    assert led.safe_end(10) == 10
    led.fetched(B, 4, 10, 0)
    assert led.safe_end(10) == 10


def test_one_that_is_close_behind_is_waited_for_so_that_it_can_join_a_busy_leader() -> None:
    led = reign(replace(ROLE, isr=(ME,)))
    led.fetched(B, 4, 10, 0)
    led.fetched(B, 10, 20, 100)
    assert led.safe_end(25) == 10
    assert led.growth(25, 10) == (ME, B)


def test_one_that_was_close_behind_is_not_waited_for_longer_than_it_may_lag() -> None:
    led = reign(replace(ROLE, isr=(ME,)))
    led.fetched(B, 10, 10, 0)
    assert led.shrinkage(25, 1000) is None
    assert led.safe_end(25) == 10
    assert led.shrinkage(25, 1001) is None
    assert led.safe_end(25) == 25


def test_one_joins_only_with_all_that_is_safe_and_past_the_start_of_the_reign() -> None:
    led = reign(replace(ROLE, isr=(ME,)), epoch_start=8)
    led.fetched(B, 7, 10, 0)
    assert led.growth(10, 5) is None
    led.fetched(B, 8, 10, 0)
    assert led.growth(10, 9) is None
    assert led.growth(10, 8) == (ME, B)


def test_an_observer_never_joins_and_is_never_waited_for() -> None:
    led = reign(replace(ROLE, isr=(ME,)))
    led.fetched(OBSERVER, 10, 10, 0)
    assert led.growth(10, 10) is None
    assert led.safe_end(20) == 20


def test_all_who_may_join_are_proposed_at_once_and_none_while_a_proposal_is_on_its_way() -> None:
    led = reign(replace(ROLE, isr=(ME,)))
    led.fetched(B, 10, 10, 0)
    led.fetched(C, 10, 10, 0)
    assert led.growth(10, 10) == (ME, B, C)
    led.propose((ME, B, C))
    assert led.growth(10, 10) is None
    assert led.shrinkage(10, 10**6) is None


def test_one_that_is_refused_does_not_keep_the_others_out() -> None:
    led = reign(replace(ROLE, isr=(ME,), replicas=(ME, B, C), observers=()))
    led.fetched(B, 10, 10, 0)
    led.fetched(C, 10, 10, 0)
    proposed = []
    for _ in range(4):
        growth = led.growth(10, 10)
        assert growth is not None
        proposed.append(growth)
        led.propose(growth)
        led.withdraw()
    assert proposed == [(ME, B, C), (ME, B), (ME, C), (ME, B)]
    led.propose((ME, C))
    led.confirm((ME, C))
    assert led.growth(10, 10) == (ME, C, B)


def test_a_newcomer_holds_the_high_watermark_from_its_proposal_on() -> None:
    led = reign(replace(ROLE, isr=(ME,)))
    led.fetched(B, 10, 10, 0)
    led.propose((ME, B))
    led.shrinkage(20, 10**6)
    assert led.safe_end(20) == 10
    led.withdraw()
    assert led.safe_end(20) == 20


def test_one_that_is_to_leave_holds_the_high_watermark_until_it_is_confirmed() -> None:
    led = reign()
    led.fetched(B, 4, 10, 0)
    assert led.shrinkage(10, 1001) == (ME,)
    led.propose((ME,))
    assert led.safe_end(10) == 4
    led.confirm((ME,))
    assert led.safe_end(10) == 10


def test_with_a_bound_on_messages_one_too_far_behind_leaves_and_may_not_join() -> None:
    led = reign(bounds=LagBounds(1000, messages=5))
    led.fetched(B, 10, 10, 0)
    assert led.shrinkage(16, 1) == (ME,)
    led.confirm((ME,))
    led.fetched(B, 10, 16, 1)
    assert led.growth(16, 10) is None
    led.fetched(B, 11, 16, 1)
    assert led.growth(16, 10) == (ME, B)


def test_a_change_by_the_controller_keeps_what_is_known_of_those_who_stay() -> None:
    led = reign()
    led.fetched(B, 4, 10, 0)
    led.propose((ME,))
    led.take(replace(ROLE, partition_epoch=8, replicas=(ME, B, 9), observers=()))
    assert led.safe_end(10) == 4
    assert not led.in_sync.pending
    assert set(led.followers) == {B, 9}


@pytest.mark.parametrize(
    ("replica", "broker_epoch", "code"),
    [(9, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (B, 4, ErrorCode.STALE_BROKER_EPOCH)],
    ids=["no replica", "an earlier life"],
)
def test_fetches_that_do_not_count(replica: int, broker_epoch: int, code: ErrorCode) -> None:
    led = reign()
    led.fetched(B, 4, 10, 0, broker_epoch=5)
    with pytest.raises(BrokerError) as refusal:
        led.fetched(replica, 10, 10, 0, broker_epoch=broker_epoch)
    assert refusal.value.code is code
    assert led.safe_end(10) == 4


class Reign(RuleBasedStateMachine):
    """Followers fetch, stall, lose data; proposals are confirmed, refused, or overtaken by the controller."""

    @initialize(
        start=st.integers(0, 5),
        isr=st.sets(st.sampled_from([B, C]), max_size=2),
        messages=st.sampled_from([-1, 3]),
    )
    def begin(self, start: int, isr: set[int], messages: int) -> None:
        self.now_ms = 0
        self.end = self.high_watermark = self.start = start
        self.bounds = LagBounds(1000, messages)
        self.led = Leading(ME, replace(ROLE, isr=(ME, *sorted(isr))), start, 0, self.bounds)
        # Those in sync have all that is safe, though the new leader has not heard of it yet.
        self.ends = {each: start if each in isr else 0 for each in (B, C, OBSERVER)}
        self.partition_epoch = ROLE.partition_epoch

    def advance(self) -> None:
        self.high_watermark = max(self.high_watermark, self.led.safe_end(self.end))

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count
        self.advance()

    @rule(who=st.sampled_from([B, C, OBSERVER]), missing=st.integers(0, 6))
    def fetch(self, who: int, missing: int) -> None:
        offset = max(self.end - missing, self.ends[who])
        self.ends[who] = offset
        self.led.fetched(who, offset, self.end, self.now_ms)
        self.advance()
        self.propose(self.led.growth(self.end, self.high_watermark))

    @rule(who=st.sampled_from([B, C]))
    def lose_data(self, who: int) -> None:
        """Only one that is not in sync can come back with less: the controller takes the others out first."""
        if who not in self.led.in_sync.maximal and self.ends[who] > 0:
            self.ends[who] -= 1
            self.led.fetched(who, self.ends[who], self.end, self.now_ms)

    @rule(passed_ms=st.sampled_from([10, 400, 1500]))
    def check_lag(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.propose(self.led.shrinkage(self.end, self.now_ms))
        self.advance()

    def propose(self, isr: tuple[int, ...] | None) -> None:
        if isr is None:
            return
        for newcomer in set(isr) - set(self.led.in_sync.committed):
            assert self.ends[newcomer] >= self.high_watermark
            assert self.ends[newcomer] >= self.start
        self.led.propose(isr)

    @precondition(lambda self: self.led.in_sync.pending)
    @rule(confirmed=st.booleans())
    def answer(self, confirmed: bool) -> None:
        proposed = self.led.in_sync.proposed
        assert proposed is not None
        if confirmed:
            self.led.confirm(proposed)
        else:
            self.led.withdraw()
        self.advance()

    @rule(who=st.sampled_from([B, C]))
    def controller_takes_one_out(self, who: int) -> None:
        self.partition_epoch += 1
        isr = tuple(each for each in self.led.in_sync.committed if each != who)
        self.led.take(replace(ROLE, isr=isr, partition_epoch=self.partition_epoch))
        self.advance()

    @invariant()
    def everyone_in_sync_has_what_is_safe(self) -> None:
        for each in self.led.in_sync.maximal:
            assert each == ME or self.ends[each] >= self.high_watermark

    @invariant()
    def observers_are_never_in_sync(self) -> None:
        assert OBSERVER not in self.led.in_sync.maximal

    @invariant()
    def the_leader_is_always_in_sync(self) -> None:
        assert ME in self.led.in_sync.committed
        assert ME in self.led.in_sync.maximal

    @invariant()
    def nothing_beyond_the_end_is_safe(self) -> None:
        assert self.high_watermark <= self.end


Reign.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestReign = Reign.TestCase
