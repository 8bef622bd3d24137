"""Members and the coordinator do everything that can happen to them, in any order; no partition is read by two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from member_rig import Rig

if TYPE_CHECKING:
    from member_rig import Player

MEMBERS_MAX = 5
PARTITIONS_MAX = 9


class Group(RuleBasedStateMachine):
    kinds: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(t=3, u=2)

    def pick(self, data: st.DataObject) -> Player:
        return data.draw(st.sampled_from(self.rig.present))

    @precondition(lambda self: len(self.rig.present) < MEMBERS_MAX)
    @rule(data=st.data(), topics=st.sampled_from([("t",), ("t", "u"), ("u",)]), static=st.booleans())
    def join(self, data: st.DataObject, topics: tuple[str, ...], static: bool) -> None:
        kind = data.draw(st.sampled_from(self.kinds))
        instance_id = f"static-{len(self.rig.players)}" if static else None
        self.rig.join(kind, topics=topics, instance_id=instance_id)

    @precondition(lambda self: self.rig.present)
    @rule(data=st.data(), steps=st.integers(1, 6))
    def step(self, data: st.DataObject, steps: int) -> None:
        player = self.pick(data)
        for _ in range(steps):
            if not self.rig.step(player):
                break

    @precondition(lambda self: self.rig.present)
    @rule(steps=st.integers(1, 8), newest_first=st.booleans())
    def everybody(self, steps: int, newest_first: bool) -> None:
        for _ in range(steps):
            for player in self.rig.present[:: -1 if newest_first else 1]:
                self.rig.step(player)
                self.rig.take_turn(player)
                self.rig.check_owners()

    @precondition(lambda self: self.rig.present)
    @rule(data=st.data())
    def begin_turn(self, data: st.DataObject) -> None:
        self.rig.begin_turn(self.pick(data))

    @precondition(lambda self: self.rig.present)
    @rule(data=st.data(), done=st.booleans())
    def end_turn(self, data: st.DataObject, done: bool) -> None:
        self.rig.end_turn(self.pick(data), done=done)

    @precondition(lambda self: self.rig.present)
    @rule(data=st.data())
    def lose_an_answer(self, data: st.DataObject) -> None:
        self.rig.lose(self.pick(data))

    @precondition(lambda self: self.rig.present)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.rig.leave(self.pick(data))

    @precondition(lambda self: self.rig.present)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.rig.crash(self.pick(data))

    @precondition(lambda self: self.rig.present)
    @rule(data=st.data())
    def sleep_and_wake(self, data: st.DataObject) -> None:
        player = self.pick(data)
        if not player.at_turn:
            self.rig.lose(player)
            self.rig.say_goodbye(player)
            player.member.fall_asleep()
            player.member.wake_up()

    @rule(by_ms=st.sampled_from([100, 1_000, 5_000, 12_000, 30_000]))
    def time_passes(self, by_ms: int) -> None:
        self.rig.driver.advance(by_ms)

    @rule()
    def the_coordinator_moves(self) -> None:
        self.rig.driver.reload()
        for player in self.rig.players:
            self.rig.lose(player)

    @precondition(lambda self: self.rig.driver.topics.counts["t"] < PARTITIONS_MAX)
    @rule()
    def the_topic_grows(self) -> None:
        driver = self.rig.driver
        driver.topics.counts["t"] += 1
        driver.perform(driver.shard.on_topics_changed(driver.topics, driver.now_ms))
        for player in self.rig.present:
            self.rig.show_topics(player)

    @invariant()
    def nothing_is_read_twice(self) -> None:
        self.rig.check_owners()

    def teardown(self) -> None:
        for player in self.rig.present:
            self.rig.end_turn(player)
        if any(player.member.failure for player in self.rig.present):
            raise AssertionError([player.member.failure for player in self.rig.present])
        if self.rig.present:
            self.rig.run()


class EagerGroup(Group):
    # All prefer the same: a coordinator that moved remembers of members only the protocol that was chosen.
    kinds = ("range", "range,roundrobin", "range,cooperative-sticky")


class StickyGroup(Group):
    kinds = ("sticky",)


class CooperativeGroup(Group):
    kinds = ("cooperative-sticky",)


class ModernGroup(Group):
    kinds = ("consumer",)


class MixedGroup(Group):
    kinds = ("consumer", "range,cooperative-sticky")


for each in (EagerGroup, StickyGroup, CooperativeGroup, ModernGroup, MixedGroup):
    each.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)

TestEagerGroup = EagerGroup.TestCase
TestStickyGroup = StickyGroup.TestCase
TestCooperativeGroup = CooperativeGroup.TestCase
TestModernGroup = ModernGroup.TestCase
TestMixedGroup = MixedGroup.TestCase
