"""What a member of a group decides, whichever protocol it speaks.

A member is asked for its `next` action; whoever runs it does that, and reports what came of it. Beside this, and at its
own pace, the application takes its `turn` when there is one: it gives up partitions, or takes new ones over. Heartbeats
go on while a turn waits, so that a busy application is not taken for a dead one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidelog.errors import BrokerError
    from tidelog.types import TopicId, TopicPartition
    from tidelog.wire.declare import Message

NEVER_S = float("inf")

NOBODY: frozenset[TopicPartition] = frozenset()

NO_GENERATION = -1


class GroupMetadata(NamedTuple):
    """Who a consumer is to its group's coordinator: what a transaction must name to commit positions for it."""

    group_id: str
    generation_id: int = NO_GENERATION
    """The member's epoch, in the newer protocol."""
    member_id: str = ""
    group_instance_id: str | None = None


class Turn(NamedTuple):
    """What the application has to do before the group can go on."""

    revoked: frozenset[TopicPartition] = NOBODY
    assigned: frozenset[TopicPartition] = NOBODY
    lost: bool = False
    """What is revoked may have another owner already: it is too late to commit."""

    def __bool__(self) -> bool:
        return bool(self.revoked or self.assigned)


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this to the coordinator; report by `answered` or `unanswered`."""

    request: Message
    response: type[Message]
    timeout_ms: int | None = None
    """None: as long as any request may take."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Learn these topics anew; report by `topics_known`."""

    topics: frozenset[str] = frozenset()
    topic_ids: frozenset[TopicId] = frozenset()


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until then, or until something happens."""

    until_s: float = NEVER_S


Action = Ask | LookUp | Rest


class KnownTopic(NamedTuple):
    topic_id: TopicId
    partitions: int


KnownTopics = Mapping[str, KnownTopic]


class Interest(NamedTuple):
    """What a member subscribes to: topics by name, or a pattern that the coordinator matches itself."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None


class Member(Protocol):
    @property
    def metadata(self) -> GroupMetadata: ...

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What the application reads now."""

    @property
    def turn(self) -> Turn | None: ...

    @property
    def failure(self) -> BrokerError | None:
        """Why the member cannot be one any more."""

    @property
    def settled(self) -> bool:
        """Whether it is in the group and no change is under way that it knows of."""

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of the member, as far as it knows."""

    @property
    def watched(self) -> frozenset[str]:
        """Topics whose growth matters to it."""

    @property
    def held_up(self) -> bool:
        """Whether nothing will change before the application does something."""

    def next(self, now_s: float) -> Action: ...

    def answered(self, reply: Message, now_s: float) -> None: ...

    def unanswered(self, now_s: float) -> None:
        """The request may or may not have been carried out."""

    def topics_known(self, topics: KnownTopics) -> None:
        """What was learnt of topics, asked for or not; those that are not in it do not exist."""

    def subscribe(self, interest: Interest) -> None: ...

    def begin_turn(self) -> Turn:
        """The application begins to do what the turn says; nothing is asked meanwhile that would change it."""

    def end_turn(self, *, done: bool) -> None:
        """It has done so, or was kept from it and will begin again."""

    def beat_soon(self) -> None:
        """Something hints that the coordinator sees things differently: ask it."""

    def goodbye(self) -> Message | None:
        """How to tell the coordinator that the member leaves; None when it need not or must not know."""

    def fall_asleep(self) -> None:
        """The application has not been seen for too long: everything it has is given up until it comes back."""

    def wake_up(self) -> None: ...
