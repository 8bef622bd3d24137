"""What the controller makes of brokers that come, go and stop: by tables, and by laws over any history."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller import reassignment
from tidelog.controller.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.controller.transitions import (
    PartitionChange,
    find,
    fresh_partition,
    lead_uncleanly,
    move_away,
    out_of_balance,
    prefer,
    reobserve,
    settle,
    still_led_by,
)
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOBODY: frozenset[int] = frozenset()


def an_image(
    live: Iterable[int], partitions: Sequence[PartitionImage], racks: dict[int, str] | None = None
) -> ClusterImage:
    image = ClusterImage("cluster", 1)
    image.brokers = {each: BrokerImage(each, {}, (racks or {}).get(each), epoch=each) for each in live}
    image.put_topic(TopicImage("t", TopicId(b"t" * 16), list(partitions)))
    return image


def at(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def apply(image: ClusterImage, changes: Iterable[PartitionChange]) -> None:
    for change in changes:
        name, number = change.topic_partition
        assert image.topics[name].partitions[number] == change.before
        image.topics[name].partitions[number] = change.partition


def settled(image: ClusterImage, *, unclean: bool = False) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Number, leader, in-sync replicas and leader epoch of each partition that changes."""
    changes = settle(image, NOBODY, lambda _: unclean)
    return [
        (change.topic_partition.partition, change.partition.leader, change.partition.isr, change.partition.leader_epoch)
        for change in changes
    ]


def test_a_dead_broker_loses_what_it_leads_first_and_then_its_place_in_sync() -> None:
    image = an_image(
        [2, 3],
        [
            PartitionImage((2, 1, 3), (2, 1, 3), 2, 4),
            PartitionImage((1, 2, 3), (1, 2, 3), 1, 4),
            PartitionImage((2, 3), (2, 3), 2, 4),
        ],
    )
    assert settled(image) == [(1, 2, (2, 3), 5), (0, 2, (2, 3), 5)]


def test_when_nobody_in_sync_lives_there_is_no_leader_and_all_of_them_may_lead_again() -> None:
    image = an_image([3], [PartitionImage((1, 2, 3), (1, 2), 1, 4)])
    changes = settle(image, NOBODY, lambda _: False)
    apply(image, changes)
    assert image.topics["t"].partitions[0] == PartitionImage((1, 2, 3), (1, 2), NO_LEADER, 5, 1)
    assert not settled(image)
    image.brokers[2] = BrokerImage(2, {})
    assert settled(image) == [(0, 2, (2,), 6)]


def test_an_unclean_leader_only_where_the_topic_allows_it() -> None:
    image = an_image([3], [PartitionImage((1, 2, 3), (1, 2), 1, 4)])
    assert settled(image, unclean=True) == [(0, 3, (3,), 5)]
    (change,) = settle(image, NOBODY, lambda _: True)
    assert change.partition.recovering


def test_a_broker_that_was_away_unnoticed_is_in_sync_no_more() -> None:
    image = an_image([1, 2, 3], [PartitionImage((1, 2, 3), (1, 2, 3), 1, 4), PartitionImage((2, 1), (2, 1), 2, 4)])
    changes = settle(image, NOBODY, lambda _: False, doubtful=lambda _: {1})
    assert [(change.partition.leader, change.partition.isr) for change in changes] == [(2, (2, 3)), (2, (2,))]


def test_one_that_was_away_and_is_alone_in_sync_leads_on_in_a_new_epoch() -> None:
    """Followers may have records of the old epoch that it has lost: the new one makes them compare."""
    image = an_image([1, 2], [PartitionImage((1, 2), (1,), 1, 4), PartitionImage((1,), (1,), 1, 4)])
    changes = settle(image, NOBODY, lambda _: False, doubtful=lambda _: {1})
    assert [(change.topic_partition, change.partition.leader_epoch) for change in changes] == [(at(0), 5)]
    assert changes[0].partition.isr == (1,)


def test_when_all_were_away_all_are_in_sync_as_before() -> None:
    image = an_image([1, 2], [PartitionImage((1, 2), (2, 1), 2, 4)])
    changes = settle(image, NOBODY, lambda _: False, doubtful=lambda _: {1, 2})
    assert [(change.partition.leader, change.partition.isr) for change in changes] == [(1, (2, 1))]


def test_a_controlled_shutdown_moves_leaders_and_leaves_the_rest() -> None:
    image = an_image(
        [1, 2, 3],
        [
            PartitionImage((2, 1), (2, 1), 2, 1),
            PartitionImage((1, 2, 3), (1, 2, 3), 1, 1),
            PartitionImage((1, 2), (1,), 1, 1),
            PartitionImage((1,), (1,), 1, 1),
            PartitionImage((2, 3), (2, 3), 2, 1),
        ],
    )
    changes = move_away(image, 1, {1})
    apply(image, changes)
    assert [change.topic_partition for change in changes] == [at(1), at(0)]
    assert find(image, at(0)) == PartitionImage((2, 1), (2,), 2, 2, 1)
    assert find(image, at(1)) == PartitionImage((1, 2, 3), (2, 3), 2, 2, 1)
    assert still_led_by(image, 1) == [at(2)]


def test_preferred_election_says_for_each_partition_why_not() -> None:
    image = an_image(
        [1, 2],
        [
            PartitionImage((1, 2), (2, 1), 2, 1),
            PartitionImage((2, 1), (2, 1), 2, 1),
            PartitionImage((1, 2), (2,), 2, 1),
        ],
    )
    changes, outcome = prefer(image, NOBODY, [at(0), at(1), at(2), at(3)])
    assert outcome == {
        at(0): ErrorCode.NONE,
        at(1): ErrorCode.ELECTION_NOT_NEEDED,
        at(2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        at(3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [change.partition for change in changes] == [PartitionImage((1, 2), (2, 1), 1, 2, 1)]


def test_a_partition_named_twice_is_elected_once() -> None:
    image = an_image([1, 2], [PartitionImage((1, 2), (2, 1), 2, 1)])
    assert len(prefer(image, NOBODY, [at(0), at(0)])[0]) == 1
    image = an_image([2], [PartitionImage((1, 2), (1,), NO_LEADER, 1)])
    assert len(lead_uncleanly(image, NOBODY, [at(0), at(0)])[0]) == 1


def test_a_broker_about_to_stop_is_not_preferred() -> None:
    image = an_image([1, 2], [PartitionImage((1, 2), (2, 1), 2, 1)])
    assert prefer(image, {1}, [at(0)])[1] == {at(0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_an_unclean_election_on_demand_helps_only_partitions_without_a_leader() -> None:
    image = an_image(
        [2],
        [
            PartitionImage((1, 2), (1,), NO_LEADER, 1),
            PartitionImage((2, 1), (2, 1), 2, 1),
            PartitionImage((1, 3), (1,), NO_LEADER, 1),
        ],
    )
    changes, outcome = lead_uncleanly(image, NOBODY, [at(0), at(1), at(2), at(9)])
    assert outcome == {
        at(0): ErrorCode.NONE,
        at(1): ErrorCode.ELECTION_NOT_NEEDED,
        at(2): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        at(9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [(change.partition.leader, change.partition.recovering) for change in changes] == [(2, True)]


@pytest.mark.parametrize(("percentage", "expected"), [(0, [0, 1]), (49, [0, 1]), (50, []), (100, [])])
def test_balance_counts_the_share_of_each_brokers_partitions(percentage: int, expected: list[int]) -> None:
    astray = PartitionImage((1, 2), (1, 2), 2, 1)
    at_home = PartitionImage((1, 2), (1, 2), 1, 1)
    image = an_image([1, 2], [astray, astray, at_home, at_home, PartitionImage((3, 2), (2,), 2, 1)])
    assert [each.partition for each in out_of_balance(image, percentage)] == expected


def test_balance_leaves_moving_partitions_alone() -> None:
    image = an_image([1, 2, 3], [PartitionImage((1, 2), (1, 2), 2, 1, adding=(1,))])
    assert not out_of_balance(image, 0)


@pytest.mark.parametrize(
    ("live", "observers", "leader", "isr"),
    [
        ({1, 2, 3}, (), 1, (1, 2, 3)),
        ({2, 3}, (), 2, (2, 3)),
        ({1, 2, 3}, (1,), 2, (2, 3)),
        (set(), (), NO_LEADER, (1, 2, 3)),
        ({3}, (3,), NO_LEADER, (1, 2)),
    ],
)
def test_a_new_partition_is_led_by_its_first_live_replica(
    live: set[int], observers: tuple[int, ...], leader: int, isr: tuple[int, ...]
) -> None:
    partition = fresh_partition((1, 2, 3), live, observers)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (leader, isr, 0)


def test_replicas_become_observers_when_the_topic_says_so() -> None:
    racks = {1: "west", 2: "east", 3: "east"}
    image = an_image(
        [1, 2, 3],
        [
            PartitionImage((1, 2, 3), (1, 2, 3), 1, 1),
            PartitionImage((2, 1), (2, 1), 2, 1),
            PartitionImage((2, 3), (2, 3), 2, 1),
            PartitionImage((1, 2), (1,), 1, 1),
        ],
        racks,
    )
    apply(image, reobserve(image, image.topics["t"], {"west"}, NOBODY))
    assert image.topics["t"].partitions == [
        PartitionImage((1, 2, 3), (2, 3), 2, 2, 1, observers=(1,)),
        PartitionImage((2, 1), (2,), 2, 2, 1, observers=(1,)),
        PartitionImage((2, 3), (2, 3), 2, 1),
        PartitionImage((1, 2), (1,), 1, 1),
    ]
    apply(image, reobserve(image, image.topics["t"], (), NOBODY))
    assert find(image, at(1)) == PartitionImage((2, 1), (2,), 2, 2, 1)


def test_plans_are_made_in_bulk() -> None:
    """Of ten thousand partitions, each decision takes microseconds: quadratic work would run into the time limit."""
    replicas = [[number % 10, (number + 1) % 10, (number + 2) % 10] for number in range(10_000)]
    image = an_image(range(10), [fresh_partition(each, range(10)) for each in replicas])
    del image.brokers[3]
    changes = settle(image, NOBODY, lambda _: False)
    apply(image, changes)
    assert len(changes) == 3000
    assert sum(change.moves_leader for change in changes) == 1000
    moved = move_away(image, 4, {4})
    assert len(moved) == 3000
    apply(image, moved)
    astray = out_of_balance(image, 10)
    assert len(astray) == 1000, "those that prefer broker 4; broker 3 is away"
    returned, _outcome = prefer(image, NOBODY, [at(number) for number in range(10_000)])
    assert not returned, "broker 4 is not in sync"


class World:
    """A cluster whose brokers come and go at will, and the laws that hold whatever happens."""

    def __init__(self, partitions: Sequence[PartitionImage]) -> None:
        self.image = an_image(range(1, 6), partitions)
        self.shutting_down: set[int] = set()
        self.unclean = False

    def take(self, changes: Sequence[PartitionChange]) -> None:
        named = [change.topic_partition for change in changes]
        assert len(set(named)) == len(named), "a partition changes at most once"
        for change in changes:
            self.check(change)
        apply(self.image, changes)

    def check(self, change: PartitionChange) -> None:
        before, after = change.before, change.partition
        assert before is not None
        assert before != after, "no change without need"
        assert after.leader_epoch >= before.leader_epoch
        assert after.partition_epoch == before.partition_epoch + 1
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
        assert after.isr, "somebody must remember the records"
        assert set(after.isr) <= set(after.replicas) - set(after.observers)
        if after.leader != NO_LEADER:
            assert after.leader in self.image.brokers
            assert after.leader in after.isr
            assert after.recovering or after.leader in before.isr or before.recovering

    def settle(self) -> None:
        self.take(settle(self.image, self.shutting_down, lambda _: self.unclean))
        for partition in self.image.topics["t"].partitions:
            electable = set(partition.isr) & set(self.image.brokers)
            assert (partition.leader in self.image.brokers) == bool(electable)
            if electable:
                assert set(partition.isr) <= set(self.image.brokers)
        assert not settle(self.image, self.shutting_down, lambda _: self.unclean), "once is enough"

    def broker_goes(self, broker_id: int) -> None:
        self.image.brokers.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.settle()

    def broker_comes(self, broker_id: int) -> None:
        self.image.brokers[broker_id] = BrokerImage(broker_id, {})
        self.settle()

    def broker_bounces(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            self.shutting_down.discard(broker_id)
            self.take(settle(self.image, self.shutting_down, lambda _: self.unclean, doubtful=lambda _: {broker_id}))

    def broker_stops(self, broker_id: int) -> None:
        if broker_id not in self.image.brokers:
            return
        self.shutting_down.add(broker_id)
        self.take(move_away(self.image, broker_id, self.shutting_down))
        for number, partition in enumerate(self.image.topics["t"].partitions):
            others = set(partition.isr) & set(self.image.brokers) - self.shutting_down - {broker_id}
            if partition.leader == broker_id:
                assert not others, "who could take over has taken over"
                assert len(partition.replicas) == 1 or at(number) in still_led_by(self.image, broker_id)

    def followers_catch_up(self, _broker_id: int) -> None:
        partitions = self.image.topics["t"].partitions
        for number, partition in enumerate(partitions):
            if partition.leader in self.image.brokers:
                isr = tuple(
                    replica
                    for replica in partition.replicas
                    if replica in self.image.brokers and replica not in partition.observers
                )
                partitions[number] = replace(partition, isr=isr, partition_epoch=partition.partition_epoch + 1)

    def leaders_return(self, _broker_id: int) -> None:
        changes, _outcome = prefer(
            self.image, self.shutting_down, [at(number) for number in range(len(self.partitions))]
        )
        self.take(changes)

    def uncleanliness_changes(self, broker_id: int) -> None:
        self.unclean = broker_id % 2 == 0

    def a_move_begins(self, broker_id: int) -> None:
        target = [1 + (broker_id + step) % 5 for step in range(2)]
        for number, partition in enumerate(self.partitions):
            try:
                after = reassignment.begin(
                    partition, target, self.image.brokers.keys(), partial(only_observer, partition)
                )
            except BrokerError:
                continue
            if after is not None:
                self.take([PartitionChange(at(number), partition, after)])
                assert set(after.replicas) >= set(target)

    def moves_complete(self, _broker_id: int) -> None:
        for number, partition in enumerate(self.partitions):
            after = reassignment.completed(partition, self.image.brokers.keys())
            if after is not None:
                self.take([PartitionChange(at(number), partition, after)])
                assert not after.reassigning
                assert after.replicas == reassignment.target_of(partition)
                assert set(after.replicas) - set(after.observers) <= set(partition.isr)

    def moves_are_cancelled(self, _broker_id: int) -> None:
        for number, partition in enumerate(self.partitions):
            try:
                after = reassignment.cancel(partition, self.image.brokers.keys(), partial(only_observer, partition))
            except BrokerError:
                continue
            self.take([PartitionChange(at(number), partition, after)])
            assert set(after.replicas) == set(partition.replicas) - set(partition.adding)

    @property
    def partitions(self) -> list[PartitionImage]:
        return self.image.topics["t"].partitions


def only_observer(partition: PartitionImage, replicas: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica in partition.observers)


@st.composite
def new_partitions(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True))
    observers = replicas[draw(st.integers(1, 4)) :]
    return fresh_partition(replicas, range(1, 6), tuple(observers))


HAPPENINGS = (
    World.broker_goes,
    World.broker_comes,
    World.broker_bounces,
    World.broker_stops,
    World.followers_catch_up,
    World.leaders_return,
    World.uncleanliness_changes,
    World.a_move_begins,
    World.moves_complete,
    World.moves_are_cancelled,
)


@given(
    st.lists(new_partitions(), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(1, 5)), max_size=25),
)
def test_the_laws_hold_in_any_history(partitions: list[PartitionImage], history: list[tuple[object, int]]) -> None:
    world = World(partitions)
    for happening, broker_id in history:
        assert callable(happening)
        happening(world, broker_id)
