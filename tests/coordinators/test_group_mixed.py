"""Clients of both protocols in the same groups, which go over from one kind to the other and back.

Whatever they do: a group is of one kind at a time, a commit that is refused changes nothing, the log gives the same
groups again, compacted or not, and in the end every request is answered and every group can be forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from group_clients import Client, Partition
from group_driver import REBALANCE_MS, GroupDriver, through_bytes
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.rebalance import NEWCOMER_WAIT_MS
from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from tidelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.decision import StoredRecord, Ticket

GROUPS = ("g", "h")
TOPICS = {"t": 5, "u": 2}

indexes = st.integers(0, 9)
instances = st.sampled_from([None, None, None, "a", "b"])
partitions = st.sampled_from([(topic, number) for topic, count in TOPICS.items() for number in range(count)])


@dataclass(eq=False)
class NewerClient:
    """Says everything when it joins, and that it has what it was given from then on."""

    driver: GroupDriver
    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int = 0
    assignment: Assignment | None = None

    def report(self, epoch: int | None = None) -> ErrorCode:
        sent = self.epoch if epoch is None else epoch
        had = [] if self.assignment is None or sent == 0 else self.assignment.topic_partitions
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=sent,
            rebalance_timeout_ms=30_000 if sent == 0 else -1,
            subscribed_topic_names=["t", "u"] if sent == 0 else None,
            topic_partitions=[TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions) for topic in had],
        )
        answer = self.driver.reply(self.driver.ask(request, 1), ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            self.epoch = 0
        else:
            self.epoch = max(answer.member_epoch, 0)
            self.assignment = answer.assignment or self.assignment
        return ErrorCode(answer.error_code)

    def commit(self, partition: Partition, offset: int) -> ErrorCode:
        answer = self.driver.commit(self.group_id, {partition: offset}, member_id=self.member_id, generation=self.epoch)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


class MixedGroupsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.classic: list[Client] = []
        self.newer: list[NewerClient] = []
        self.names = 0
        self.void: set[Ticket] = set()
        self.committed: dict[str, dict[Partition, int]] = defaultdict(dict)

    @initialize(policy=st.sampled_from(["bidirectional", "bidirectional", "upgrade", "disabled"]))
    def start(self, policy: str) -> None:
        self.driver = GroupDriver(
            GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy, offsets_retention_ms=10**12),
            **TOPICS,
        )

    @rule(group_id=st.sampled_from(GROUPS), instance_id=instances)
    @precondition(lambda self: len(self.classic) < 5)
    def begin_classic(self, group_id: str, instance_id: str | None) -> None:
        self.classic.append(Client(self.driver, group_id, instance_id, ("t", "u"), 9))

    @rule(group_id=st.sampled_from(GROUPS), instance_id=instances)
    @precondition(lambda self: len(self.newer) < 4)
    def begin_newer(self, group_id: str, instance_id: str | None) -> None:
        self.names += 1
        client = NewerClient(self.driver, group_id, f"newer-{self.names}", instance_id)
        client.report()
        self.newer.append(client)

    @rule(index=indexes, steps=st.integers(1, 3))
    @precondition(lambda self: self.classic)
    def step(self, index: int, steps: int) -> None:
        for _ in range(steps):
            self.classic[index % len(self.classic)].step()

    @rule(rounds=st.integers(2, 8))
    def everybody_behaves(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.classic:
                client.step()
                if client.holds is not None:
                    client.heartbeat()
            for newer in self.newer:
                newer.report()
            self.driver.advance(1000)

    @rule(index=indexes)
    @precondition(lambda self: self.newer)
    def report(self, index: int) -> None:
        self.newer[index % len(self.newer)].report()

    @rule(index=indexes, silently=st.booleans())
    @precondition(lambda self: self.classic)
    def end_classic(self, index: int, silently: bool) -> None:
        client = self.classic.pop(index % len(self.classic))
        if client.member_id and not silently:
            self.driver.leave(client.group_id, (client.member_id, client.instance_id))

    @rule(index=indexes, epoch=st.sampled_from([None, -1, -1, -2]))
    @precondition(lambda self: self.newer)
    def end_newer(self, index: int, epoch: int | None) -> None:
        client = self.newer.pop(index % len(self.newer))
        if epoch is not None:
            client.report(epoch)

    @rule(index=indexes, partition=partitions)
    @precondition(lambda self: self.classic or self.newer)
    def commit(self, index: int, partition: Partition) -> None:
        clients: list[Client | NewerClient] = [*self.classic, *self.newer]
        client = clients[index % len(clients)]
        self.names += 1
        if client.commit(partition, self.names) is ErrorCode.NONE:
            self.committed[client.group_id][partition] = self.names

    @rule(by_ms=st.sampled_from([1, 5000, 10_000, 30_000, 60_000]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule()
    def the_coordinator_is_lost(self) -> None:
        self.driver.advance(0)  # a group that has just become a classic one begins to rebalance
        waiting = {ticket for ticket in self.driver.asked if self.driver.waits(ticket)}
        self.void |= waiting
        before = self.shown(settled_only=True)
        self.driver.reload()
        after = self.shown()
        assert {group_id: after[group_id] for group_id in before} == before
        for client in self.classic:
            client.joining = None if client.joining in waiting else client.joining
            client.syncing = None if client.syncing in waiting else client.syncing

    @rule()
    def a_compacted_log_says_the_same(self) -> None:
        live = self.driver.shard
        self.replay(self.driver.log)
        full = self.shown()
        newest = {repr(record.key): record for record in self.driver.log}
        self.replay([record for record in self.driver.log if newest[repr(record.key)] is record])
        assert self.shown() == full
        self.driver.shard = live

    def replay(self, log: Iterable[StoredRecord]) -> None:
        self.driver.shard = self.driver.new_shard()
        for record in log:
            self.driver.shard.apply(*through_bytes(record))

    def shown(self, *, settled_only: bool = False) -> dict[str, Any]:
        """What administrators see of each group."""
        shown: dict[str, Any] = {}
        for group_id, (state, kind) in self.driver.listed().items():
            if kind.lower() == "consumer":
                request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
                group = self.driver.reply(self.driver.ask(request, 1), DescribedConsumerGroup)
                members = sorted(group.members, key=lambda member: member.member_id)
                shown[group_id] = group.group_epoch, group.assignment_epoch, members
            elif state == "Stable" or not settled_only:
                shown[group_id] = self.driver.describe(group_id)
        return shown

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        for group_id in GROUPS:
            assert self.driver.offsets(group_id) == self.committed[group_id]

    @invariant()
    def a_group_is_of_one_kind(self) -> None:
        for group_id in GROUPS:
            assert not (group_id in self.driver.shard._classic and group_id in self.driver.shard._consumer)

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.a_compacted_log_says_the_same()
        self.driver.advance(2 * NEWCOMER_WAIT_MS + 10 * REBALANCE_MS)
        assert {ticket for ticket in self.driver.asked if self.driver.waits(ticket)} <= self.void
        for group_id in self.driver.listed():
            assert self.driver.delete(group_id) == ErrorCode.NONE
        assert self.driver.listed() == {}


TestMixedGroups = MixedGroupsMachine.TestCase
TestMixedGroups.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
