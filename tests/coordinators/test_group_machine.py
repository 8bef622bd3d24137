"""Many clients in a few classic groups, in any order, with lost coordinators and time that passes as it likes.

- no partition has two owners in one generation
- nobody who was replaced, who left, or whose generation is over can commit
- every request is answered once time passes
- the records alone, all of them or only the newest of each key, give the same state again
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from group_clients import Client, Partition, read_assignment
from group_driver import REBALANCE_MS, GroupDriver, through_bytes
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.coordinators.groups.classic_group import ClassicGroup, GroupState
from tidelog.coordinators.groups.config import GroupConfig
from tidelog.coordinators.groups.rebalance import NEWCOMER_WAIT_MS
from tidelog.errors import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.stored.classic_groups import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.decision import StoredRecord, Ticket
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.wire.declare import Struct

GROUPS = ("g", "h")
TOPICS = {"t": 5, "u": 2}
CLIENTS_MAX = 7

clients = st.integers(0, CLIENTS_MAX - 1)
partitions = st.sampled_from([(topic, number) for topic, count in TOPICS.items() for number in range(count)])


class WatchedGroups(GroupDriver):
    """Remembers what everybody was told."""

    def __init__(self, config: GroupConfig) -> None:
        self.owners: dict[tuple[str, int, int], dict[str, frozenset[Partition]]] = defaultdict(dict)
        """By group, life of the group and generation: what each member was given to read. Who comes back as the same
        instance inherits what the former one had."""
        self.newest: dict[str, int] = {}
        """The last generation of each group that anybody was told of."""
        self.lives: Counter[str] = Counter()
        super().__init__(config, **TOPICS)

    def deliver(self, ticket: Ticket, reply: Struct) -> None:
        super().deliver(ticket, reply)
        request = self.requests[ticket]
        match request, reply:
            case JoinGroupRequest(), JoinGroupResponse(error_code=0):
                self.newest[request.group_id] = reply.generation_id
            case SyncGroupRequest(), SyncGroupResponse(error_code=0):
                owner = request.member_id if request.group_instance_id is None else f"={request.group_instance_id}"
                place = (request.group_id, self.lives[request.group_id], request.generation_id)
                self.owners[place][owner] = read_assignment(reply.assignment)

    def end_of_life(self, group_id: str) -> None:
        """Generations of a group that was deleted begin at one again."""
        self.lives[group_id] += 1
        self.newest.pop(group_id, None)

    def reload(self) -> None:
        super().reload()
        self.newest = {group_id: value.generation for group_id, value in last_values(self.log).items()}


class ClassicGroupsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.gone: list[Client] = []
        """Clients whose place was taken by another, or who left: whatever they send must be refused."""
        self.void: set[Ticket] = set()
        """Requests that nobody waits for any more."""
        self.committed: dict[str, dict[Partition, int]] = defaultdict(dict)
        self.next_offset = 0

    @initialize(delay_ms=st.sampled_from([0, 2000]), size=st.sampled_from([3, 1000]))
    def start(self, delay_ms: int, size: int) -> None:
        config = GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=size, offsets_retention_ms=10**12)
        self.driver = WatchedGroups(config)

    def client(self, index: int) -> Client:
        return self.clients[index % len(self.clients)]

    # --- what clients do ---

    @rule(
        group_id=st.sampled_from(GROUPS),
        instance_id=st.sampled_from([None, None, "a", "b"]),
        topics=st.sampled_from([("t",), ("t", "u"), ("u",)]),
        version=st.sampled_from([3, 5, 8, 9]),
        others=st.integers(0, 3),
    )
    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    def begin(self, group_id: str, instance_id: str | None, topics: tuple[str, ...], version: int, others: int) -> None:
        if version < 5:
            instance_id = None
        if any(c.group_id == group_id and c.instance_id == instance_id is not None for c in self.clients):
            return  # a second one at the same time is what `restart` is for
        self.clients.append(Client(self.driver, group_id, instance_id, topics, version))
        for _ in range(min(others, CLIENTS_MAX - len(self.clients))):
            self.clients.append(Client(self.driver, group_id, None, topics, version))

    @rule(index=clients, steps=st.integers(1, 4))
    @precondition(lambda self: self.clients)
    def step(self, index: int, steps: int) -> None:
        for _ in range(steps):
            self.client(index).step()

    @rule(rounds=st.integers(1, 3))
    def everybody_steps(self, rounds: int) -> None:
        """Without this, whole rounds would be rare."""
        for _ in range(rounds):
            for client in self.clients:
                client.step()

    @rule(rounds=st.integers(3, 12))
    def everybody_behaves(self, rounds: int) -> None:
        """All do what they should for a while, so that groups settle now and then."""
        for _ in range(rounds):
            for client in self.clients:
                client.step()
                if client.holds is not None:
                    client.heartbeat()
            self.driver.advance(500)

    @rule(index=clients)
    @precondition(lambda self: self.clients)
    def report(self, index: int) -> None:
        client = self.client(index)
        if client.generation >= 0:
            client.heartbeat()

    @rule()
    def everybody_reports(self) -> None:
        for client in self.clients:
            if client.generation >= 0:
                client.heartbeat()

    @rule(index=clients, topics=st.sampled_from([("t",), ("t", "u")]))
    @precondition(lambda self: self.clients)
    def subscribe_anew(self, index: int, topics: tuple[str, ...]) -> None:
        client = self.client(index)
        client.topics = topics
        if client.joining is None and client.syncing is None:
            client.join()

    @rule(index=clients)
    @precondition(lambda self: self.clients)
    def leave(self, index: int) -> None:
        client = self.client(index)
        if client.member_id:
            answer = self.driver.leave(client.group_id, (client.member_id, client.instance_id))
            assert answer.members[0].error_code in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}
            self.gone.append(client)
        self.forget(client, noticed=False)

    @rule(index=clients, noticed=st.booleans())
    @precondition(lambda self: self.clients)
    def crash(self, index: int, noticed: bool) -> None:
        client = self.client(index)
        self.forget(client, noticed=noticed)

    @rule(index=clients, noticed=st.booleans())
    @precondition(lambda self: any(client.instance_id for client in self.clients))
    def restart(self, index: int, noticed: bool) -> None:
        """A static member starts anew; its former self may still be there."""
        static = [client for client in self.clients if client.instance_id]
        former = static[index % len(static)]
        newer = Client(self.driver, former.group_id, former.instance_id, former.topics, former.version)
        self.forget(former, noticed=noticed)
        self.clients.append(newer)
        newer.join()
        assert newer.joining is not None
        taken = self.driver.waits(newer.joining) or not self.driver.joined(newer.joining).error_code
        if former.member_id and taken:
            self.gone.append(former)

    def forget(self, client: Client, *, noticed: bool) -> None:
        self.clients.remove(client)
        for ticket in (client.joining, client.syncing):
            if ticket is not None and noticed and self.driver.waits(ticket):
                self.driver.shard.abandon(ticket)
                self.void.add(ticket)

    # --- offsets ---

    @rule(index=clients, partition=partitions)
    @precondition(lambda self: self.clients)
    def commit(self, index: int, partition: Partition) -> None:
        client = self.client(index)
        if client.generation < 0:
            return
        self.next_offset += 1
        group = self.driver.describe(client.group_id)
        known = client.member_id in {member.member_id for member in group.members}
        current = client.generation == self.driver.newest.get(client.group_id)
        code = client.commit(partition, self.next_offset)
        if code is ErrorCode.NONE:
            assert known, "it is not a member any more"
            assert current, "its generation is over"
            assert group.group_state in {"Stable", "PreparingRebalance"}
            self.committed[client.group_id][partition] = self.next_offset
        else:
            assert not known or not current or group.group_state == "CompletingRebalance"

    @rule(index=clients, partition=partitions, ago=st.integers(1, 3))
    @precondition(lambda self: self.clients)
    def nobody_can_go_back_in_time(self, index: int, partition: Partition, ago: int) -> None:
        client = self.client(index)
        newest = self.driver.newest.get(client.group_id, 0)
        past = Client(self.driver, client.group_id, client.instance_id, client.topics, client.version)
        past.member_id, past.generation = client.member_id, newest - ago
        if past.generation < 0:
            return
        assert past.commit(partition, -1) is not ErrorCode.NONE
        who = (past.group_id, past.member_id, past.generation)
        assert self.driver.heartbeat(*who, past.instance_id) != ErrorCode.NONE
        assert self.driver.synced(self.driver.sync(*who, instance_id=past.instance_id)).error_code != ErrorCode.NONE

    @rule(group_id=st.sampled_from(GROUPS), partition=partitions)
    def commit_from_outside(self, group_id: str, partition: Partition) -> None:
        self.next_offset += 1
        before = self.driver.state(group_id)
        answer = self.driver.commit(group_id, {partition: self.next_offset})
        accepted = answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert accepted == (before in {"Empty", "Dead"})
        if accepted:
            self.committed[group_id][partition] = self.next_offset

    @rule(index=st.integers(0, 100), partition=partitions)
    @precondition(lambda self: self.gone)
    def whoever_is_gone_tries_all(self, index: int, partition: Partition) -> None:
        client = self.gone[index % len(self.gone)]
        if client.generation < 0:
            return
        refusals = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
        who = (client.group_id, client.member_id, client.generation)
        assert client.commit(partition, -1) in refusals | {ErrorCode.GROUP_ID_NOT_FOUND}
        assert self.driver.heartbeat(*who, client.instance_id) in refusals
        assert self.driver.synced(self.driver.sync(*who, instance_id=client.instance_id)).error_code in refusals

    @rule(group_id=st.sampled_from(GROUPS))
    def delete(self, group_id: str) -> None:
        before = self.driver.state(group_id)
        code = self.driver.delete(group_id)
        if code == ErrorCode.NONE:
            assert before == "Empty"
            self.committed.pop(group_id, None)
            self.driver.end_of_life(group_id)
        else:
            assert code == (ErrorCode.GROUP_ID_NOT_FOUND if before == "Dead" else ErrorCode.NON_EMPTY_GROUP)

    # --- the world ---

    @rule(by_ms=st.sampled_from([1, 1000, 4000, 9999, 10_000, 30_000, REBALANCE_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.driver.advance(by_ms)

    @rule()
    def the_coordinator_is_lost(self) -> None:
        waiting = {ticket for ticket in self.driver.asked if self.driver.waits(ticket)}
        self.void |= waiting
        self.driver.reload()
        for client in self.clients:
            for name in ("joining", "syncing"):
                if getattr(client, name) in waiting:
                    setattr(client, name, None)
        # Whoever replaced them may never have been stored.
        self.gone.clear()

    # --- what always holds ---

    @invariant()
    def no_partition_has_two_owners_in_a_generation(self) -> None:
        for place, shares in self.driver.owners.items():
            counts = Counter(partition for share in shares.values() for partition in share)
            assert not [partition for partition, owners in counts.items() if owners > 1], (place, shares)

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        for group_id in GROUPS:
            assert self.driver.offsets(group_id) == self.committed[group_id]

    @invariant()
    def groups_hold_together(self) -> None:
        for group in self.driver.shard._classic:
            assert group.joining == sum(member.join is not None for member in group.members.values())
            assert group._supporters == Counter(name for member in group.members.values() for name in member.protocols)
            static = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
            assert group.static_ids == static
            assert group.unsynced <= group.members.keys()
            assert not group.pending & group.members.keys()
            for member_id in (*group.members, *group.pending):
                assert ("session", group.group_id, member_id) in self.driver.timers, "nobody watches it"
            assert (("join", group.group_id) in self.driver.timers) == (group.state is GroupState.PREPARING_REBALANCE)
            if group.state is GroupState.COMPLETING_REBALANCE:
                assert ("sync", group.group_id) in self.driver.timers
                assert group.leader in group.members

    @rule()
    def the_records_give_the_same_state_again(self) -> None:
        full = stored_state(replayed(self.driver, self.driver.log))
        newest = {repr(record.key): record for record in self.driver.log}
        compacted = [record for record in self.driver.log if newest[repr(record.key)] is record]
        assert stored_state(replayed(self.driver, compacted)) == full
        live = stored_state(self.driver.shard)
        for group in self.driver.shard._classic:
            settled = group.state in {GroupState.STABLE, GroupState.EMPTY}
            if settled and group.stored:
                assert live[group.group_id] == full[group.group_id]
        assert live[""] == full[""], "offsets"

    def teardown(self) -> None:
        """Everybody falls silent. Nothing waits for ever."""
        if not hasattr(self, "driver"):
            return
        self.the_records_give_the_same_state_again()
        self.driver.advance(2 * NEWCOMER_WAIT_MS + 10 * REBALANCE_MS)
        waiting = {ticket for ticket in self.driver.asked if self.driver.waits(ticket)}
        assert waiting <= self.void
        assert {state for state, _kind in self.driver.listed().values()} <= {"Empty"}
        assert not self.driver.shard._classic._rounds._parked


def replayed(driver: GroupDriver, log: Iterable[StoredRecord]) -> GroupShard:
    shard = driver.new_shard()
    for record in log:
        shard.apply(*through_bytes(record))
    return shard


def stored_state(shard: GroupShard) -> dict[str, Any]:
    """What of the shard's state is stored, by group; offsets under no name."""
    state: dict[str, Any] = {group.group_id: stored_group(group) for group in shard._classic if group.stored}
    state[""] = {group_id: shard._offsets.topics(group_id) for group_id in shard._offsets}
    return state


def stored_group(group: ClassicGroup) -> tuple[Any, ...]:
    return (
        group.state,
        group.divided({member_id: member.assignment for member_id, member in group.members.items()}, 0),
        group.state_since_ms,
        group.static_ids,
    )


def last_values(log: Iterable[StoredRecord]) -> dict[str, GroupMetadataValue]:
    values: dict[str, GroupMetadataValue] = {}
    for record in log:
        if isinstance(record.key, GroupMetadataKey):
            if isinstance(record.value, GroupMetadataValue):
                values[record.key.group] = record.value
            else:
                values.pop(record.key.group, None)
    return values


TestClassicGroups = ClassicGroupsMachine.TestCase
TestClassicGroups.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
