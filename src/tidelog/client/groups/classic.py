"""A member of a classic group, as a state machine. Reads no clock, sends nothing.

    JOIN     wants to take part in a rebalance; first the application gives up what it must
    DIVIDE   leads this generation: needs to know the topics of all members before it can divide them
    SYNC     asks for its share, and hands in everybody's if it leads
    SETTLE   knows its share; the application takes it over
    STABLE   reads, and says now and then that it is alive

Eager members give up everything before they join. Cooperative ones keep reading, learn what moves, give that up, and
join again so that its new owner gets it (KIP-429).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from tidelog.assign import CLASSIC
from tidelog.client.errors import error_code, refusal
from tidelog.client.groups.member import (
    NO_GENERATION,
    NOBODY,
    Action,
    Ask,
    GroupMetadata,
    Interest,
    LookUp,
    Rest,
    Turn,
)
from tidelog.client.groups.subscriptions import (
    PROTOCOL_TYPE,
    assignment_bytes,
    read_assignment,
    read_subscription,
    sticky_data,
    subscription_bytes,
)
from tidelog.errors import BrokerError, ErrorCode
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.assign import Subscriber
    from tidelog.client.groups.member import KnownTopics
    from tidelog.types import TopicPartition
    from tidelog.wire.declare import Message

COOPERATIVE: Final = "cooperative-sticky"
STICKY: Final = "sticky"

_JOIN_GRACE_MS: Final = 5_000
"""The coordinator answers a join when the rebalance timeout is over at the latest; the answer takes its time, too."""


class Phase(Enum):
    JOIN = auto()
    DIVIDE = auto()
    SYNC = auto()
    SETTLE = auto()
    STABLE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSettings:
    group_id: str
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    assignors: tuple[str, ...] = ("range", COOPERATIVE)
    """In order of preference."""
    rack: str | None = None

    @property
    def cooperative(self) -> bool:
        """Only if whatever the group agrees on lets members keep what they have."""
        return set(self.assignors) == {COOPERATIVE}


class ClassicMember:
    def __init__(self, settings: ClassicSettings) -> None:
        self._settings = settings
        self.phase = Phase.JOIN
        self.owned = NOBODY
        self.turn: Turn | None = None
        self.failure: BrokerError | None = None
        self._taking: Turn | None = None
        """The turn that the application is at."""
        self._topics: frozenset[str] = frozenset()
        self._member_id = ""
        self._generation = NO_GENERATION
        self._protocol = ""
        self._next_beat_s = 0.0
        self._asleep = False
        self._again = False
        """Something happened that needs another rebalance as soon as this one is over."""
        self._had: tuple[frozenset[TopicPartition], int] = (NOBODY, NO_GENERATION)
        """What an eager member owned last and in which generation, for assignors that are sticky."""
        self._members: dict[str, Subscriber[str]] = {}
        self._shares: dict[str, bytes] = {}
        self._divided: dict[str, int] = {}
        """How many partitions the topics had when this member, as leader, divided them; empty for others."""

    @property
    def metadata(self) -> GroupMetadata:
        settings = self._settings
        return GroupMetadata(settings.group_id, self._generation, self._member_id, settings.instance_id)

    @property
    def settled(self) -> bool:
        return self.phase is Phase.STABLE and self.turn is None

    @property
    def may_commit(self) -> bool:
        return self.phase in {Phase.SETTLE, Phase.STABLE}

    @property
    def watched(self) -> frozenset[str]:
        return self._topics.union(*(member.topics for member in self._members.values()))

    @property
    def held_up(self) -> bool:
        return self.turn is not None or self._taking is not None or self._asleep or self.failure is not None

    @property
    def leads(self) -> bool:
        return bool(self._members)

    # What to do next

    def next(self, now_s: float) -> Action:
        if self.failure is not None or self._asleep or not self._topics:
            return Rest()
        if self.turn is not None or self._taking is not None or self.phase is Phase.STABLE:
            return self._beat(now_s)
        if self.phase is Phase.JOIN:
            return self._join()
        if self.phase is Phase.DIVIDE:
            return LookUp(self.watched)
        assert self.phase is Phase.SYNC, "settling without a turn is being stable"
        return self._sync()

    def _beat(self, now_s: float) -> Action:
        if self._generation == NO_GENERATION:
            return Rest()
        if now_s < self._next_beat_s:
            return Rest(self._next_beat_s)
        settings = self._settings
        return Ask(
            HeartbeatRequest(
                group_id=settings.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=settings.instance_id,
            ),
            HeartbeatResponse,
            settings.session_timeout_ms // 2,  # late enough to be sure, early enough to try once more
        )

    def _join(self) -> Ask:
        settings = self._settings
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self._offer(name)) for name in settings.assignors],
        )
        return Ask(request, JoinGroupResponse, settings.rebalance_timeout_ms + _JOIN_GRACE_MS)

    def _offer(self, assignor: str) -> bytes:
        data = sticky_data(*self._had) if assignor == STICKY and self._had[0] else None
        generation = self._generation if self.owned else NO_GENERATION
        return subscription_bytes(self._topics, self.owned, generation, rack=self._settings.rack, user_data=data)

    def _sync(self) -> Ask:
        settings = self._settings
        request = SyncGroupRequest(
            group_id=settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in self._shares.items()
            ],
        )
        return Ask(request, SyncGroupResponse, settings.rebalance_timeout_ms + _JOIN_GRACE_MS)

    # What came of it

    def answered(self, reply: Message, now_s: float) -> None:
        if isinstance(reply, HeartbeatResponse):
            self._heard(reply, now_s)
        elif isinstance(reply, JoinGroupResponse):
            self._joined(reply)
        else:
            assert isinstance(reply, SyncGroupResponse), f"nobody asked for {type(reply).__name__}"
            self._synced(reply, now_s)

    def unanswered(self, now_s: float) -> None:
        # A join or a share that got no answer is asked for again: the coordinator knows the member and what it said.
        self._next_beat_s = now_s

    def _heard(self, reply: HeartbeatResponse, now_s: float) -> None:
        self._next_beat_s = now_s + self._settings.heartbeat_interval_ms / 1000
        code = error_code(reply.error_code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rebalance()
        elif code:
            self._refused(code)

    def _joined(self, reply: JoinGroupResponse) -> None:
        code = error_code(reply.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            pass  # asked again
        elif code:
            self._refused(code)
        else:
            self._enter(reply)

    def _enter(self, reply: JoinGroupResponse) -> None:
        self._member_id, self._generation = reply.member_id, reply.generation_id
        self._protocol = reply.protocol_name or ""
        self._again = False
        self._members, self._shares, self._divided = {}, {}, {}
        self.phase = Phase.SYNC
        if reply.leader != reply.member_id:
            return
        if self._protocol not in CLASSIC:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose {self._protocol!r}, unknown here")
            return
        sticky = self._protocol == STICKY
        self._members = {
            member.member_id: read_subscription(bytes(member.metadata), member.group_instance_id, sticky_data=sticky)
            for member in reply.members
        }
        # A static leader that came back finds the old division in force, and still has to look after it (KIP-814).
        if not reply.skip_assignment:
            self.phase = Phase.DIVIDE

    def topics_known(self, topics: KnownTopics) -> None:
        wanted = {topic for member in self._members.values() for topic in member.topics}
        counts = {topic: topics[topic].partitions for topic in wanted if topic in topics}
        if self.phase is Phase.DIVIDE:
            self._divide(counts)
        elif self.leads and self.phase in {Phase.SETTLE, Phase.STABLE} and _changed(self._divided, counts):
            self._divided = counts
            self._rebalance()

    def _divide(self, counts: dict[str, int]) -> None:
        self._divided = counts
        shares = CLASSIC[self._protocol](self._members, counts)
        self._shares = {member_id: assignment_bytes(share) for member_id, share in shares.items()}
        self.phase = Phase.SYNC

    def _synced(self, reply: SyncGroupResponse, now_s: float) -> None:
        code = error_code(reply.error_code)
        self._shares = {}
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rebalance()
            return
        if code:
            self._refused(code)
            return
        share = read_assignment(bytes(reply.assignment))
        if share is None:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's leader sent a share that cannot be read")
            return
        self._next_beat_s = now_s + self._settings.heartbeat_interval_ms / 1000
        self._had = (share, self._generation)
        turn = Turn(revoked=self.owned - share, assigned=share - self.owned)
        self.phase = Phase.SETTLE if turn else Phase.STABLE
        self.turn = turn or None

    def _refused(self, code: ErrorCode) -> None:
        """The coordinator does not know this member or its generation any more, or will not have it at all."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._begin_anew()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._begin_anew(self._member_id)
        else:
            self._fail(code)

    def _fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.failure = refusal(code, message, about=f"group {self._settings.group_id}")
        self._begin_anew()

    def _begin_anew(self, member_id: str = "") -> None:
        """What is owned may be somebody else's already."""
        self._member_id, self._generation = member_id, NO_GENERATION
        self._members, self._shares, self._divided = {}, {}, {}
        self._again = False
        self.phase = Phase.JOIN
        self.turn = Turn(revoked=self.owned, lost=True) if self.owned else None

    # What the application does

    def subscribe(self, interest: Interest) -> None:
        assert interest.pattern is None, "coordinators of classic groups know no patterns"
        if interest.topics != self._topics:
            self._topics = interest.topics
            if self._generation != NO_GENERATION:
                self._rebalance()

    def _rebalance(self) -> None:
        """Joins again as soon as it can be: what the application is just taking over is taken over first."""
        if self.phase is Phase.SETTLE:
            self._again = True
            return
        if self.phase is Phase.JOIN:
            return
        self.phase = Phase.JOIN
        self._again = False
        gone = self.owned
        if self._settings.cooperative:
            gone = frozenset(partition for partition in self.owned if partition.topic not in self._topics)
        self.turn = Turn(revoked=gone) if gone else None

    def begin_turn(self) -> Turn:
        assert self.turn is not None, "there must be one"
        self._taking = self.turn
        return self.turn

    def end_turn(self, *, done: bool) -> None:
        turn, self._taking = self._taking, None
        if turn is None or not done:
            return
        self.owned = (self.owned - turn.revoked) | turn.assigned
        if turn != self.turn:
            # The member was thrown out while the application was at it.
            self.turn = Turn(revoked=self.owned, lost=True) if self.owned else None
            return
        self.turn = None
        if self.phase is Phase.SETTLE:
            self.phase = Phase.STABLE
            if turn.revoked or self._again:
                self._rebalance()

    def beat_soon(self) -> None:
        self._next_beat_s = 0.0

    def goodbye(self) -> Message | None:
        if not self._member_id or self._settings.instance_id is not None:
            return None
        return LeaveGroupRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            members=[MemberIdentity(member_id=self._member_id)],
        )

    def fall_asleep(self) -> None:
        self._asleep = True
        # A static member keeps its id: nobody was told that it left.
        self._begin_anew(self._member_id if self._settings.instance_id is not None else "")

    def wake_up(self) -> None:
        self._asleep = False


def _changed(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """A topic that cannot be seen any more may be one that a broker does not know yet; its deletion is no news either
    to who reads it. Only what is new has to be divided."""
    return bool(Counter(now) - Counter(before))
