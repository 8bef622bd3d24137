"""Classic and newer members in one group that changes from one protocol to the other and back, in any order.

At no time two members of the group may be reading one partition, and when everybody reports for a while each partition
is read by exactly one. Classic members are cooperative ones: they read on while they rebalance.
"""

from __future__ import annotations

from typing import TypeAlias

from classic_readers import ClassicReader
from consumer_readers import GROUP, ConsumerDriver, Owned, Reader, compacted, durable, replay
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from tidelog.coordinators.groups.config import GroupConfig

AnyReader: TypeAlias = Reader | ClassicReader


class MixedGroupMachine(RuleBasedStateMachine):
    readers = Bundle("readers")

    @initialize(target=readers, partitions=st.integers(2, 6), classic=st.integers(0, 3), newer=st.integers(0, 2))
    def begin(self, partitions: int, classic: int, newer: int) -> object:
        self.driver = ConsumerDriver(GroupConfig(initial_rebalance_delay_ms=0), t=partitions)
        self.everyone: list[AnyReader] = []
        self.joined = 0
        for _ in range(classic):
            self.classic_member_comes()
        for _ in range(newer):
            self.newer_member_comes()
        self._settle(6)
        return multiple(*self.everyone)

    @precondition(lambda self: len(self.everyone) < 6)
    @rule(target=readers)
    def classic_member_comes(self) -> AnyReader:
        reader = ClassicReader(self.driver)
        self.everyone.append(reader)
        reader.beat()
        return reader

    @precondition(lambda self: len(self.everyone) < 6)
    @rule(target=readers)
    def newer_member_comes(self) -> AnyReader:
        self.joined += 1
        reader = Reader(self.driver, f"new{self.joined}")
        self.everyone.append(reader)
        self.driver.advance(100)
        reader.beat()
        return reader

    @rule(reader=readers)
    def report(self, reader: AnyReader) -> None:
        reader.beat()

    @rule(reader=readers)
    def report_and_do_as_told(self, reader: AnyReader) -> None:
        reader.beat()
        reader.obey()

    @rule(reader=readers)
    def reply_is_lost(self, reader: AnyReader) -> None:
        if isinstance(reader, Reader):
            reader.beat(lose_reply=True)

    @rule()
    def everybody_reports_once(self) -> None:
        for reader in self.everyone:
            reader.beat()

    @rule(reader=consumes(readers))
    def leave(self, reader: AnyReader) -> None:
        reader.leave()
        self.everyone.remove(reader)

    @rule(reader=consumes(readers))
    def die(self, reader: AnyReader) -> None:
        self.everyone.remove(reader)

    @rule(by_ms=st.sampled_from([100, 2500, 5000, 11_000, 46_000]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule(more=st.integers(1, 3))
    def topic_grows(self, more: int) -> None:
        self.driver.topics.counts["t"] += more
        self.driver.perform(self.driver.shard.on_topics_changed(self.driver.topics, self.driver.now_ms))

    @rule()
    def coordinator_restarts(self) -> None:
        self.driver.reload()
        for reader in self.everyone:
            if isinstance(reader, ClassicReader):
                reader.connection_lost()

    @rule()
    def everybody_reports(self) -> None:
        self._settle(60)
        if not self.everyone:
            return
        kinds = {type(reader) for reader in self.everyone}
        if kinds == {ClassicReader} and GROUP not in self.driver.shard._consumer:
            # Classic members do not notice new partitions by themselves: their leader would look after that.
            for reader in self.everyone:
                if isinstance(reader, ClassicReader):
                    reader.rejoin_soon()
            self._settle(30)
        read = [partition for reader in self.everyone for partition in reader.reading]
        assert sorted(read) == [("t", number) for number in range(self.driver.topics.counts["t"])]

    # --- what always holds ---

    @invariant()
    def no_two_members_read_a_partition(self) -> None:
        seen: dict[tuple[str, int], AnyReader] = {}
        members = self._members()
        for reader in self.everyone:
            if reader.member_id in members:
                told: Owned = (reader.told or set()) if isinstance(reader, Reader) else set()
                for partition in reader.reading | told:
                    assert seen.setdefault(partition, reader) is reader

    @invariant()
    def the_log_tells_the_same(self) -> None:
        stored = durable(self.driver.shard._consumer._table)
        assert durable(self.driver.replayed()) == stored
        assert durable(replay(compacted(self.driver.log), self.driver.config)) == stored

    @invariant()
    def a_group_is_of_one_kind(self) -> None:
        assert not (GROUP in self.driver.shard._consumer and GROUP in self.driver.shard._classic)

    def _members(self) -> set[str]:
        newer, classic = self.driver.shard._consumer.get(GROUP), self.driver.shard._classic.get(GROUP)
        return set(newer.members if newer is not None else classic.members if classic is not None else ())

    def _settle(self, rounds: int) -> None:
        for _ in range(rounds):
            for reader in self.everyone:
                reader.beat()
                reader.obey()
                self.no_two_members_read_a_partition()
            self.driver.advance(2500)


TestMixedGroupMachine = MixedGroupMachine.TestCase
TestMixedGroupMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
