"""Members of both protocols against the coordinator itself, without sockets and with a clock that a test moves."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from group_driver import GroupDriver

from tidelog.client.groups.classic import ClassicMember, ClassicSettings
from tidelog.client.groups.member import Ask, Interest, KnownTopic, LookUp, Rest
from tidelog.client.groups.modern import ModernMember, ModernSettings
from tidelog.coordinators.groups.config import GroupConfig
from tidelog.errors import ErrorCode
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.groups.member import Member
    from tidelog.coordinators.decision import Ticket
    from tidelog.wire.declare import Message

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 20_000
BEAT_MS = 1_000
ROUND_MS = 500
ROUNDS_MAX = 400

COMMIT_VERSION = 9
LEAVE_VERSION = 5


class Player:
    """A member, whoever runs it, and its application."""

    def __init__(self, name: str, member: Member, topics: Iterable[str]) -> None:
        self.name = name
        self.member = member
        self.topics = frozenset(topics)
        self.pending: Ticket | None = None
        self.asked: Ask | None = None
        self.at_turn = False
        self.heard: list[ErrorCode] = []
        self.gone = False

    def __repr__(self) -> str:
        return f"{self.name} {self.member.metadata.generation_id} owns {sorted(self.member.owned)}"


class Rig:
    def __init__(self, **partitions: int) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=0, consumer_session_timeout_ms=SESSION_MS, consumer_heartbeat_interval_ms=BEAT_MS
        )
        self.driver = GroupDriver(config, **(partitions or {"t": 4}))
        self.players: list[Player] = []
        self._names = count(1)

    @property
    def now_s(self) -> float:
        return self.driver.now_ms / 1000

    def join(
        self,
        kind: str,
        *,
        topics: Iterable[str] = ("t",),
        instance_id: str | None = None,
    ) -> Player:
        """`kind` is an assignor, or several with commas between them, or "consumer" for the newer protocol."""
        name = f"{kind}-{next(self._names)}"
        member: Member
        if kind == "consumer":
            member = ModernMember(
                ModernSettings(
                    group_id=GROUP, member_id=name, instance_id=instance_id, rebalance_timeout_ms=REBALANCE_MS
                )
            )
        else:
            member = ClassicMember(
                ClassicSettings(
                    group_id=GROUP,
                    instance_id=instance_id,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    heartbeat_interval_ms=BEAT_MS,
                    assignors=tuple(kind.split(",")),
                )
            )
        player = Player(name, member, topics)
        member.subscribe(Interest(player.topics))
        self.players.append(player)
        return player

    @property
    def present(self) -> list[Player]:
        return [player for player in self.players if not player.gone]

    # What whoever runs a member does

    def step(self, player: Player) -> bool:
        """One action of the member, or what came of the last; false if there is nothing to do."""
        if player.pending is not None:
            return self._hear(player)
        action = player.member.next(self.now_s)
        if isinstance(action, Rest):
            return False
        if isinstance(action, LookUp):
            self.show_topics(player)
            return True
        player.asked = action
        player.pending = self._ask(action.request)
        return True

    def _ask(self, request: Message) -> Ticket:
        version = min(type(request).VERSIONS.last, 9)
        through = decode(type(request), to_bytes(request, version), version)
        return self.driver.ask(through, version)

    def _hear(self, player: Player) -> bool:
        assert player.pending is not None
        assert player.asked is not None
        reply = self.driver.replies.get(player.pending)
        if reply is None:
            return False
        player.pending = None
        assert isinstance(reply, player.asked.response)
        code = ErrorCode(getattr(reply, "error_code", 0))
        if code:
            player.heard.append(code)
        player.member.answered(reply, self.now_s)
        return True

    def lose(self, player: Player) -> None:
        """The answer never arrives."""
        if player.pending is not None:
            player.pending = None
            player.member.unanswered(self.now_s)

    def show_topics(self, player: Player) -> None:
        topics = self.driver.topics
        player.member.topics_known(
            {name: KnownTopic(TopicId(topics.topic_id(name) or b""), count) for name, count in topics.counts.items()}
        )

    # What applications do

    def begin_turn(self, player: Player) -> bool:
        if player.at_turn or player.member.turn is None:
            return False
        player.member.begin_turn()
        player.at_turn = True
        return True

    def end_turn(self, player: Player, *, done: bool = True) -> None:
        if player.at_turn:
            player.at_turn = False
            player.member.end_turn(done=done)

    def take_turn(self, player: Player) -> bool:
        if player.at_turn or self.begin_turn(player):
            self.end_turn(player)
            return True
        return False

    def leave(self, player: Player) -> None:
        player.gone = True
        self.say_goodbye(player)

    def say_goodbye(self, player: Player) -> None:
        farewell = player.member.goodbye()
        if isinstance(farewell, LeaveGroupRequest):
            farewell.member_id = ""
        if farewell is not None:
            self._ask(farewell)

    def crash(self, player: Player) -> None:
        player.gone = True

    # What is so

    def accepted(self, player: Player) -> bool:
        """Whether the coordinator would take a commit of this member."""
        who = player.member.metadata
        if not who.member_id or who.generation_id <= 0:
            return False
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
                    ],
                )
            ],
        )
        reply = self.driver.reply(self.driver.ask(request, COMMIT_VERSION), OffsetCommitResponse)
        return reply.topics[0].partitions[0].error_code == 0

    def owners(self) -> dict[TopicPartition, list[Player]]:
        found: dict[TopicPartition, list[Player]] = {}
        for player in self.present:
            for partition in player.member.owned:
                found.setdefault(partition, []).append(player)
        return found

    def check_owners(self) -> None:
        """Of several that read a partition, at most one may commit: the others are dead and do not know it."""
        for partition, players in self.owners().items():
            if len(players) > 1:
                able = [player for player in players if self.accepted(player)]
                assert len(able) <= 1, f"{partition} is read and committed by {able}"

    def settled(self) -> bool:
        wanted = {
            TopicPartition(topic, number)
            for topic, count in self.driver.topics.counts.items()
            for number in range(count)
            if any(topic in player.topics for player in self.present)
        }
        owners = self.owners()
        return owners.keys() == wanted and all(len(players) == 1 for players in owners.values())

    def run(self, *, share: int | None = None) -> None:
        """Everybody does what there is to do, and time passes, until all is read by one member each.

        With `share`, until every member has so many partitions, too.
        """
        for _ in range(ROUNDS_MAX):
            busy = True
            while busy:
                busy = False
                # The newest first: who takes over before others have given up is found out.
                for player in reversed(self.present):
                    while self.step(player) or self.take_turn(player):
                        busy = True
                        self.check_owners()
            fair = share is None or all(len(player.member.owned) == share for player in self.present)
            if fair and self.settled() and all(player.member.settled for player in self.present):
                return
            self.driver.advance(ROUND_MS)
            for player in self.present:
                self.show_topics(player)
        raise AssertionError(f"not settled: {self.present}")
