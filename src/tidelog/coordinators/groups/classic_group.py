"""A classic group: its members, its generation, and the state it is in.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
                  |       ^                 |               |
      Empty <-----'       '-----------------+---------------'

Members gather in PreparingRebalance, the leader divides the partitions in CompletingRebalance, and Stable lasts until
somebody joins or leaves. What is stored is the division: Stable and Empty are reached by applying its record alone,
live and when loading alike. Who waits for what, and until when, is known only to the coordinator that is told.

This module holds the facts and the rules that follow from them; `rebalance.py` moves a group through its rounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from tidelog.errors import ErrorCode
from tidelog.wire.stored.classic_groups import GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.decision import Ticket


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """Never held by a group: what is said of one that is not there."""


_PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE},
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
}
"""The steps that are taken in memory. The other states are set by records, which say how things are."""


class Waiter(NamedTuple):
    """A request that is answered later, and the version its answer must fit."""

    ticket: Ticket
    version: int


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    """What the member supports, in its order of preference. Of a member that was loaded, only what was selected."""
    assignment: bytes = b""

    deadline_ms: int = 0
    """When the session ends. It stands still while the member waits for a reply."""
    newcomer_until_ms: int | None = None
    """Set while the first join of a member is not answered: it is given up then."""
    join: Waiter | None = None
    sync: Waiter | None = None

    @property
    def waits(self) -> bool:
        return self.join is not None or self.sync is not None

    def alive(self, now_ms: int) -> None:
        """The session begins anew. The timer that watches it notices when it fires."""
        self.deadline_ms = now_ms + self.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        return self.protocols.get(protocol, b"") if protocol is not None else b""

    def supports_the_same(self, protocols: Mapping[str, bytes]) -> bool:
        """The order counts too: it is the member's vote."""
        return list(self.protocols.items()) == list(protocols.items())


@dataclass(slots=True, eq=False)
class ClassicGroup:
    group_id: str
    state: GroupState = GroupState.EMPTY
    protocol_type: str | None = None
    """None as long as nobody ever joined."""
    generation: int = 0
    protocol: str | None = None
    """Selected with the generation; None between Empty and the first generation after it."""
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    state_since_ms: int = -1
    """When the stored state was entered."""
    stored: bool = False
    """Whether the log has a record of the group, which must be buried with it."""

    static_ids: dict[str, str] = field(default_factory=dict)
    """Member ids by group.instance.id."""
    pending: set[str] = field(default_factory=set)
    """Member ids that were given out and that nobody has joined with yet."""
    unsynced: set[str] = field(default_factory=set)
    """Members that know of this generation but did not ask for their share of it."""
    joining: int = 0
    """How many members wait in a join."""
    gathering: bool = False
    """The round is the first since Empty: it lasts a while even when all have joined."""
    gathering_left_ms: int = 0
    newcomers: bool = False
    """Somebody joined since the gathering was last extended."""
    _supporters: Counter[str] = field(default_factory=Counter)
    """How many members support each protocol: a thousand joins need not ask a thousand members each."""

    # --- questions ---

    @property
    def deletable(self) -> bool:
        return self.state is GroupState.EMPTY and not self.pending

    @property
    def all_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member decides how long the others wait."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is who it says it is. A newer member of the same instance fences the older one (KIP-345)."""
        if instance_id is not None:
            holder = self.static_ids.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether offsets may be committed by this member, or by somebody who is none."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = self.check_member(member_id, instance_id)
        if code:
            return code
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """A producer may speak for a member, or for nobody in particular. Its transaction is what keeps it in order,
        so a group that is about to be divided anew takes its word."""
        if generation < 0 and ((not member_id and instance_id is None) or self.state is GroupState.EMPTY):
            return ErrorCode.NONE
        code = self.check_member(member_id, instance_id)
        if code:
            return code
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def accepts(self, member_id: str, size_max: int) -> bool:
        """Whether there is room. While a group gathers, those count who are there, so that the slowest are left out."""
        if self.state is GroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or self.joining < size_max
        return member is not None or len(self.members) < size_max

    def supports(self, protocol_type: str, protocols: Mapping[str, bytes], joiner: ClassicMember | None) -> bool:
        """Whether all members would still have a protocol in common. What `joiner` supported before is its past."""
        if not protocol_type or not protocols:
            return False
        if self.state is GroupState.EMPTY or not self.members:
            return True
        if protocol_type != self.protocol_type:
            return False
        others = len(self.members) - (joiner is not None)
        return any(
            self._supporters[name] - (joiner is not None and name in joiner.protocols) == others for name in protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for its favourite among those that all support; the earliest members decide a tie."""
        votes: Counter[str] = Counter()
        size = len(self.members)
        for member in self.members.values():
            votes[next(name for name in member.protocols if self._supporters[name] == size)] += 1
        return max(votes, key=votes.__getitem__)

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic. Of consumers that cannot be understood anything is believed."""
        topics = self.subscribed_topics()
        return self.uses_consumer_protocol if topics is None else topic in topics

    def subscribed_topics(self) -> frozenset[str] | None:
        """None if it cannot be known."""
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            read = [self.protocol] if self.protocol is not None else member.protocols
            for protocol in read:
                wanted = subscribed_topics(member.metadata(protocol))
                if wanted is None:
                    return None
                topics |= wanted
        return frozenset(topics)

    # --- members come and go ---

    def enter(self, state: GroupState) -> None:
        assert self.state in _PREDECESSORS[state], f"{self.group_id}: {self.state} cannot become {state}"
        self.state = state

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.pending.discard(member.member_id)
        self.members[member.member_id] = member
        self._supporters.update(member.protocols.keys())
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: ClassicMember) -> None:
        assert not member.waits, "whoever waits is answered first"
        del self.members[member.member_id]
        self.unsynced.discard(member.member_id)
        self._withdraw(member)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def change_protocols(self, member: ClassicMember, protocols: dict[str, bytes]) -> None:
        self._withdraw(member)
        self._supporters.update(protocols.keys())
        member.protocols = protocols

    def _withdraw(self, member: ClassicMember) -> None:
        for name in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]  # clients choose the names: they must not pile up

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """A static member has restarted: the new one takes the old one's place in everything."""
        assert member.instance_id is not None
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        self.unsynced.discard(member.member_id)
        member.member_id = member_id
        self.members[member_id] = member
        self.static_ids[member.instance_id] = member_id

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined this round, else takes the first who has. False if nobody has."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is None or leader.join is None:
            self.leader = next((member.member_id for member in self.members.values() if member.join is not None), None)
        return self.leader is not None

    def begin_generation(self) -> None:
        self.generation = _next_generation(self.generation)
        self.protocol = self.select_protocol()

    # --- what is stored ---

    def divided(self, assignments: Mapping[str, bytes], now_ms: int) -> GroupMetadataValue:
        """The record of this generation: once applied, the group is Stable."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=now_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    def deserted(self, now_ms: int) -> GroupMetadataValue:
        """The record of a group that everybody left: once applied, the group is Empty."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=_next_generation(self.generation),
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )

    def restore(self, value: GroupMetadataValue) -> None:
        """Makes the group what the record says. Members that are here keep what only the coordinator knows of them."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_since_ms = value.current_state_timestamp
        self.stored = True
        self.members = {
            stored.member_id: _restored(self.members.get(stored.member_id), stored, value.protocol or "")
            for stored in value.members
        }
        self.static_ids = {
            member.instance_id: member.member_id for member in self.members.values() if member.instance_id is not None
        }
        self._supporters = _supporters(self.members.values())
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY


def _restored(member: ClassicMember | None, stored: MemberMetadata, protocol: str) -> ClassicMember:
    if member is None:
        member = ClassicMember(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=stored.rebalance_timeout,
            protocols={protocol: stored.subscription},
        )
    member.instance_id = stored.group_instance_id
    member.client_id = stored.client_id
    member.client_host = stored.client_host
    member.session_timeout_ms = stored.session_timeout
    # Records of the first version have no rebalance timeout: members then had one timeout for both.
    member.rebalance_timeout_ms = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
    if member.protocols.get(protocol) != stored.subscription:
        member.protocols = {protocol: stored.subscription}
    member.assignment = stored.assignment
    return member


def _supporters(members: Iterable[ClassicMember]) -> Counter[str]:
    supporters: Counter[str] = Counter()
    for member in members:
        supporters.update(member.protocols.keys())
    return supporters


def _next_generation(generation: int) -> int:
    """Generations are 32 bits wide; after the last one they begin again."""
    return generation + 1 if generation < 2**31 - 1 else 1
