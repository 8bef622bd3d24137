"""Many members of one group, in any order of joins, lost replies, slow members, leaves, restarts and changes.

After every step: no two members that are in the group may be reading one partition, what members are told agrees with
what is stored, and reading the log gives the same state, compacted or not. When everybody reports for a while, all come
to rest with exactly their target, balanced.
"""

from __future__ import annotations

from consumer_readers import GROUP, ConsumerDriver, Owned, Reader, compacted, durable, replay, settle
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

from tidelog.errors import ErrorCode

TOPICS = ("apples", "beans", "cherries")
subscriptions = st.just(["apples", "beans"]) | st.lists(st.sampled_from(TOPICS), max_size=3, unique=True)


class ConsumerGroupMachine(RuleBasedStateMachine):
    readers = Bundle("readers")

    @initialize(target=readers, apples=st.integers(2, 6), beans=st.integers(0, 3))
    def begin(self, apples: int, beans: int) -> object:
        self.driver = ConsumerDriver(apples=apples, beans=beans)
        self.everyone: dict[str, Reader] = {}
        self.ghosts: list[Reader] = []
        """Those who report no more, and may be reading for as long as they are members."""
        self.joined = 0
        first = [self.join(["apples", "beans"], static=number == 0) for number in range(3)]
        settle(self.everyone.values(), rounds=4)
        return multiple(*first)

    # --- members ---

    @precondition(lambda self: len(self.everyone) < 6)
    @rule(target=readers, topics=subscriptions, static=st.booleans())
    def join(self, topics: list[str], static: bool) -> Reader:
        self.joined += 1
        instance_id = f"i{self.joined}" if static else None
        reader = Reader(self.driver, f"m{self.joined}", *topics, instance_id=instance_id)
        reader.topics = topics
        self.everyone[reader.member_id] = reader
        self.driver.advance(100)  # mostly the last target is old enough to make another one
        assert reader.beat() == ErrorCode.NONE
        return reader

    @rule(reader=readers)
    def report(self, reader: Reader) -> None:
        assert reader.beat() in {
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,  # everybody was away for so long that nothing is left of it
        }

    @rule(reader=readers)
    def report_and_hear_nothing(self, reader: Reader) -> None:
        reader.beat(lose_reply=True)

    @rule(reader=readers)
    def do_as_told(self, reader: Reader) -> None:
        reader.obey()

    @rule(reader=readers)
    def report_and_do_as_told(self, reader: Reader) -> None:
        reader.beat()
        reader.obey()

    @rule(reader=readers, topics=subscriptions)
    def subscribe_anew(self, reader: Reader, topics: list[str]) -> None:
        self.driver.advance(100)
        reader.subscribe(*topics)
        reader.beat()

    @rule(reader=consumes(readers))
    def leave(self, reader: Reader) -> None:
        reader.leave()
        del self.everyone[reader.member_id]

    @rule(target=readers, reader=consumes(readers))
    def restart(self, reader: Reader) -> object:
        """A static member leaves for a while and comes back as another member; others just come back."""
        del self.everyone[reader.member_id]
        reader.leave(-2 if reader.instance_id is not None else -1)
        self.joined += 1
        back = Reader(self.driver, f"m{self.joined}", *reader.topics, instance_id=reader.instance_id)
        back.topics = reader.topics
        self.everyone[back.member_id] = back
        return back if back.beat() == ErrorCode.NONE else multiple(back)

    @rule(reader=consumes(readers))
    def die(self, reader: Reader) -> None:
        """Nobody hears of it again; the coordinator finds out when its session ends."""
        self.ghosts.append(self.everyone.pop(reader.member_id))

    # --- everything else ---

    @rule(by_ms=st.sampled_from([1, 100, 5000, 20_000, 45_000]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule(topic=st.sampled_from(TOPICS), more=st.sampled_from([1, 2, 3, None]))
    def topic_appears_or_grows_or_goes(self, topic: str, more: int | None) -> None:
        counts = self.driver.topics.counts
        if more is None:
            counts.pop(topic, None)
        else:
            counts[topic] = counts.get(topic, 0) + more
        self.driver.perform(self.driver.shard.on_topics_changed(self.driver.topics, self.driver.now_ms))

    @rule()
    def coordinator_restarts(self) -> None:
        self.driver.reload()

    @rule()
    def everybody_reports(self) -> None:
        """However the group got where it is, from here it comes to rest. Those that died are found out first."""
        living = list(self.everyone.values())
        settle(living, rounds=25)
        if not living:
            return
        group = self.driver.group()
        assert group.members.keys() == {reader.member_id for reader in living}
        assert group.state == "Stable"
        read: Owned = set()
        for reader in living:
            assert reader.reading == self._named(group.target.get(reader.member_id, {}))
            assert {topic for topic, _number in reader.reading} <= set(reader.topics)
            read |= reader.reading
        counts = self.driver.topics.counts
        wanted = {topic for reader in living for topic in reader.topics if topic in counts}
        assert read == {(topic, number) for topic in wanted for number in range(counts[topic])}
        if len({frozenset(reader.topics) for reader in living}) == 1:
            sizes = [len(reader.reading) for reader in living]
            assert max(sizes) - min(sizes) <= 1

    # --- what always holds ---

    @invariant()
    def no_two_members_read_a_partition(self) -> None:
        members = self._members()
        seen: dict[tuple[str, int], str] = {}
        for reader in [*self.everyone.values(), *self.ghosts]:
            if reader.member_id in members:
                # Whoever has just been told may begin at once.
                for partition in reader.may_read:
                    assert seen.setdefault(partition, reader.member_id) == reader.member_id

    @invariant()
    def the_log_tells_the_same(self) -> None:
        live = self.driver.shard._consumer._table
        stored = durable(live)
        assert durable(self.driver.replayed()) == stored
        assert durable(replay(compacted(self.driver.log), self.driver.config)) == stored

    @invariant()
    def who_is_away_is_watched(self) -> None:
        """Every member has a timer that throws it out, were it never heard of again."""
        timers = {key for key in self.driver.timers if isinstance(key, tuple) and key[0] == "consumer-session"}
        assert timers == {("consumer-session", GROUP, member_id) for member_id in self._members()}

    def _members(self) -> set[str]:
        group = self.driver.shard._consumer.get(GROUP)
        return set() if group is None else set(group.members)

    def _named(self, partitions: dict[bytes, frozenset[int]]) -> Owned:
        return {
            (self.driver.topics.name(topic_id) or "", number)
            for topic_id, numbers in partitions.items()
            for number in numbers
        }


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestConsumerGroupMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_answers_lost_to_one_who_was_about_to_begin() -> None:
    """One has been told what to read and has not begun; the answers that take part of it away are lost, and it says
    everything again. Meanwhile another, for whom that part is meant, reports and changes its mind."""
    machine = ConsumerGroupMachine()
    machine.driver, machine.everyone, machine.ghosts, machine.joined = ConsumerDriver(apples=8, beans=2), {}, [], 0
    one = machine.join(["apples", "beans"], static=True)
    other = machine.join(["apples", "beans"], static=False)
    machine.report(other)
    machine.report_and_hear_nothing(one)
    machine.do_as_told(other)
    machine.report_and_hear_nothing(one)
    machine.subscribe_anew(other, ["apples"])
    machine.no_two_members_read_a_partition()
    machine.do_as_told(one)
    machine.do_as_told(other)
    machine.no_two_members_read_a_partition()
    machine.everybody_reports()
