"""A member of a group of the newer protocol (KIP-848), as a state machine. Reads no clock, sends nothing.

There is one kind of request, the heartbeat. It says what has changed since the last one that was answered, or
everything when that is not certain; the answer says what the member is to own. The application then gives up what is
not in it any more and takes over what is new, and the next heartbeat, sent at once, says so.

Whenever a heartbeat says what the member owns, that includes what it was told to take over and has not taken over yet.
It may do so before the answer comes, if that comes at all; a coordinator that thought it free could give it to another.

    epoch 0    not in the group yet, or thrown out of it
    epoch > 0  in it, and that far behind no change that it knows of
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client.errors import error_code, refusal
from tidelog.client.groups.member import Action, Ask, GroupMetadata, Interest, LookUp, Rest, Turn
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.groups.member import KnownTopics
    from tidelog.wire.declare import Message

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_FOR_A_WHILE_EPOCH: Final = -2

_FIRST_INTERVAL_MS: Final = 5_000
_LOOK_UP_AGAIN_S: Final = 1.0
_ASK_AGAIN_S: Final = 1.0

_THROWN_OUT: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)

_EXPLAINED: Final = {
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not offer the consumer protocol: set group_protocol to classic"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernSettings:
    group_id: str
    member_id: str
    """Chosen by the member itself; never used by another."""
    instance_id: str | None = None
    rebalance_timeout_ms: int = 300_000
    assignor: str | None = None
    """None: whichever the coordinator prefers."""
    rack: str | None = None


class Place(NamedTuple):
    topic_id: TopicId
    partition: int


class _Said(NamedTuple):
    """The parts of a heartbeat that need not be repeated; None: not said yet."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    owned: frozenset[Place] | None = None
    """And what it might begin to own at any moment."""


class ModernMember:
    def __init__(self, settings: ModernSettings) -> None:
        self._settings = settings
        self._member_id = settings.member_id
        self._epoch = JOINING_EPOCH
        self.failure: BrokerError | None = None
        self._interest = Interest()
        self._owned: frozenset[Place] = frozenset()
        self._target: frozenset[Place] = frozenset()
        self._names: dict[TopicId, str] = {}
        self._thrown_out = False
        """What is owned may be somebody else's already."""
        self._taking: Turn | None = None
        self._moving: tuple[frozenset[Place], frozenset[Place]] = (frozenset(), frozenset())
        """What the turn that is being taken gives up and takes over. Ids, since a topic that was deleted and created
        again has the name of the old one."""
        self._asleep = False
        self._interval_s = _FIRST_INTERVAL_MS / 1000
        self._next_beat_s = 0.0
        self._next_look_up_s = 0.0
        self._patient = False
        """News can wait for the next heartbeat: the last one was refused for the time being."""
        self._said: _Said | None = None
        self._saying = _Said()

    @property
    def metadata(self) -> GroupMetadata:
        settings = self._settings
        return GroupMetadata(settings.group_id, self._epoch, self._member_id, settings.instance_id)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._named(self._owned)

    @property
    def settled(self) -> bool:
        return self._epoch > JOINING_EPOCH and self._owned == self._target and not self._news()

    @property
    def may_commit(self) -> bool:
        return self._epoch > JOINING_EPOCH

    @property
    def watched(self) -> frozenset[str]:
        return self._interest.topics

    @property
    def held_up(self) -> bool:
        return self._thrown_out or self._asleep or self.failure is not None

    @property
    def turn(self) -> Turn | None:
        if self._taking is not None:
            return self._taking
        if self._thrown_out:
            turn = Turn(revoked=self.owned, lost=True)
        else:
            turn = Turn(revoked=self._named(self._owned - self._target), assigned=self._named(self._new()))
        return turn or None

    def _new(self) -> frozenset[Place]:
        """What is to be taken over, as far as its topic is known by name."""
        return frozenset(place for place in self._target - self._owned if place.topic_id in self._names)

    def _named(self, places: Iterable[Place]) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(self._names[place.topic_id], place.partition) for place in places)

    # What to do next

    def next(self, now_s: float) -> Action:
        if self.failure is not None or self._asleep or not self._interest or self._thrown_out:
            return Rest()
        unknown = frozenset(place.topic_id for place in self._target if place.topic_id not in self._names)
        if unknown and now_s >= self._next_look_up_s:
            self._next_look_up_s = now_s + _LOOK_UP_AGAIN_S
            return LookUp(self._interest.topics, unknown)
        if (self._news() and not self._patient) or now_s >= self._next_beat_s:
            self._patient = False
            return self._beat()
        return Rest(min(self._next_beat_s, self._next_look_up_s) if unknown else self._next_beat_s)

    def _news(self) -> bool:
        said, now = self._said, self._now()
        if said is None or said[:2] != now[:2]:
            return True
        assert said.owned is not None, "every first heartbeat says it"
        # What is still to be taken over is news when that is done.
        return not self._owned <= said.owned <= (now.owned or frozenset())

    def _now(self) -> _Said:
        taking_over = frozenset() if self._taking is None else self._moving[1]
        return _Said(self._interest.topics, self._interest.pattern, self._owned | self._target | taking_over)

    def _beat(self) -> Ask:
        settings, said, now = self._settings, self._said, self._now()
        self._saying = now
        fields: dict[str, Any] = {"instance_id": settings.instance_id}
        if said is None:
            fields |= {
                "rack_id": settings.rack,
                "rebalance_timeout_ms": settings.rebalance_timeout_ms,
                "server_assignor": settings.assignor,
            }
        before = said or _Said()
        # A pattern alone goes without names: an empty list would say that there are none.
        if now.topics != before.topics and (said is not None or now.topics or now.pattern is None):
            fields["subscribed_topic_names"] = sorted(now.topics or ())
        if now.pattern != before.pattern:
            fields["subscribed_topic_regex"] = now.pattern or ""
        if now.owned != before.owned:
            fields["topic_partitions"] = _by_topic(now.owned or ())
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id, member_id=self._member_id, member_epoch=self._epoch, **fields
        )
        return Ask(request, ConsumerGroupHeartbeatResponse)

    # What came of it

    def answered(self, reply: Message, now_s: float) -> None:
        assert isinstance(reply, ConsumerGroupHeartbeatResponse), f"nobody asked for {type(reply).__name__}"
        code = error_code(reply.error_code)
        if code in _THROWN_OUT:
            self._throw_out()
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID:
            # An earlier life of this instance, or a join whose answer was lost, until its session ends.
            self._throw_out()
            self._next_beat_s = now_s + _ASK_AGAIN_S
            self._patient = True
        elif code:
            self.failure = refusal(
                code, reply.error_message or _EXPLAINED.get(code), about=f"group {self._settings.group_id}"
            )
            self._throw_out()
        else:
            self._said = self._saying
            self._member_id = reply.member_id or self._member_id
            self._epoch = reply.member_epoch
            self._interval_s = reply.heartbeat_interval_ms / 1000
            self._next_beat_s = now_s + self._interval_s
            if reply.assignment is not None:
                self._target = frozenset(
                    Place(TopicId(bytes(topic.topic_id)), number)
                    for topic in reply.assignment.topic_partitions
                    for number in topic.partitions
                )
                self._next_look_up_s = 0.0

    def unanswered(self, now_s: float) -> None:
        self._said = None
        self._next_beat_s = now_s

    def _throw_out(self) -> None:
        self._epoch = JOINING_EPOCH
        self._said = None
        self._target = frozenset()
        self._next_beat_s = 0.0
        self._thrown_out = bool(self._owned) or self._taking is not None

    def topics_known(self, topics: KnownTopics) -> None:
        self._names |= {known.topic_id: name for name, known in topics.items()}

    # What the application does

    def subscribe(self, interest: Interest) -> None:
        self._interest = interest

    def begin_turn(self) -> Turn:
        turn = self.turn
        assert turn is not None, "there must be one"
        self._taking = turn
        self._moving = (self._owned, frozenset()) if turn.lost else (self._owned - self._target, self._new())
        return turn

    def end_turn(self, *, done: bool) -> None:
        turn, self._taking = self._taking, None
        if turn is not None and done:
            given_up, taken_over = self._moving
            self._owned = (self._owned - given_up) | taken_over
        self._thrown_out = self._thrown_out and bool(self._owned)

    def beat_soon(self) -> None:
        self._next_beat_s = 0.0

    def goodbye(self) -> Message | None:
        if self._epoch == JOINING_EPOCH:
            return None
        static = self._settings.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            member_epoch=LEAVING_FOR_A_WHILE_EPOCH if static else LEAVING_EPOCH,
            instance_id=self._settings.instance_id,
        )

    def fall_asleep(self) -> None:
        self._asleep = True
        self._throw_out()

    def wake_up(self) -> None:
        self._asleep = False


def _by_topic(places: Iterable[Place]) -> list[TopicPartitions]:
    found: dict[TopicId, list[int]] = {}
    for topic_id, number in sorted(places):
        found.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in found.items()]
