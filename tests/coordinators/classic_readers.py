"""Classic members that rebalance cooperatively, as their clients do, whatever kind the group is at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_readers import GROUP, ConsumerDriver, Owned

from tidelog.assign import CLASSIC, Subscriber
from tidelog.errors import ErrorCode
from tidelog.wire.codec import decode, to_bytes
from tidelog.wire.stored.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

if TYPE_CHECKING:
    from tidelog.coordinators.decision import Ticket
    from tidelog.wire.messages.join_group import JoinGroupResponse

PROTOCOL = "cooperative-sticky"
VERSION = 2


class ClassicReader:
    """Goes one step at a time: what it waits for is looked at with the next step."""

    def __init__(self, driver: ConsumerDriver, instance_id: str | None = None, protocol: str = PROTOCOL) -> None:
        self.driver = driver
        self.instance_id = instance_id
        self.protocol = protocol
        self.member_id = ""
        self.generation = -1
        self.reading: Owned = set()
        self.topics = ["t"]
        self._must_join = True
        self._join: Ticket | None = None
        self._sync: Ticket | None = None

    def beat(self) -> int:
        """Goes on as far as it can without waiting. Gives the last error code."""
        if self._join is None and self._sync is None and not self._must_join:
            code = self.driver.heartbeat(GROUP, self.member_id, self.generation, self.instance_id)
            return self._heed(code)
        if self._join is None and self._sync is None:
            self.ask_to_join()
        if self._join is not None and not self.driver.waits(self._join):
            self._on_joined(self.driver.joined(self._join))
        if self._sync is not None and not self.driver.waits(self._sync):
            return self._on_synced()
        return ErrorCode.NONE

    def obey(self) -> None:
        """It has, with its sync."""

    def leave(self) -> int:
        if not self.member_id:
            return ErrorCode.NONE
        code = self.driver.leave(GROUP, (self.member_id, self.instance_id)).members[0].error_code
        self._lose_everything()
        self.member_id = ""
        return code

    def adopt(self, member_id: str, generation: int, reading: Owned) -> None:
        """Takes over a member that has joined and synced already."""
        self.member_id, self.generation, self.reading, self._must_join = member_id, generation, reading, False

    def leads(self) -> bool:
        """Whether the answer to its join, which it has not looked at, makes it the leader."""
        return self._join is not None and self.driver.joined(self._join).leader == self.member_id

    def rejoin_soon(self) -> None:
        """As a member does that has noticed something: joins with its next step, unless it is about to anyway."""
        self._must_join = self._must_join or (self._join is None and self._sync is None)

    def connection_lost(self) -> None:
        """Whatever it waits for will not come."""
        if self._join is not None or self._sync is not None:
            self._join = self._sync = None
            self._must_join = True

    # --- steps ---

    def ask_to_join(self) -> int:
        """Joins; the code is that of the answer, if there is one at once."""
        self._must_join = False
        protocols = {self.protocol: subscription_bytes(self.topics, self.reading, self.generation)}
        self._join = self.driver.join(GROUP, self.member_id, protocols=protocols, instance_id=self.instance_id)
        if self.driver.waits(self._join):
            return ErrorCode.NONE
        reply = self.driver.joined(self._join)
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return self.ask_to_join()
        if not reply.error_code:
            self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply.error_code

    def _on_joined(self, reply: JoinGroupResponse) -> None:
        self._join = None
        if reply.error_code:
            self._heed(reply.error_code)
            return
        self.member_id, self.generation = reply.member_id, reply.generation_id
        assignments = divide(reply, self.driver) if reply.leader == self.member_id else {}
        self._sync = self.driver.sync(GROUP, self.member_id, self.generation, assignments, instance_id=self.instance_id)

    def _on_synced(self) -> int:
        assert self._sync is not None
        reply = self.driver.synced(self._sync)
        self._sync = None
        if reply.error_code:
            return self._heed(reply.error_code)
        told = assigned(reply.assignment)
        self._must_join = not self.reading <= told  # to say that it let go, so that others can have it
        self.reading = told
        return ErrorCode.NONE

    def _heed(self, code: int) -> int:
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self._lose_everything()
            self.member_id = ""
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._lose_everything()
        elif code:
            self._must_join = True
        return code

    def _lose_everything(self) -> None:
        self.reading, self.generation, self._must_join = set(), -1, True
        self._join = self._sync = None


def divide(reply: JoinGroupResponse, driver: ConsumerDriver) -> dict[str, bytes]:
    """What the leader of a classic group does."""
    subscribers = {}
    for member in reply.members:
        version = int.from_bytes(member.metadata[:2], "big")
        wanted = decode(ConsumerProtocolSubscription, member.metadata, version, 2)
        owned = {topic.topic: topic.partitions for topic in wanted.owned_partitions}
        subscribers[member.member_id] = Subscriber(frozenset(wanted.topics), owned, wanted.generation_id)
    shares = CLASSIC[PROTOCOL](subscribers, driver.topics.counts)
    return {
        member_id: share_bytes({(topic, number) for topic, numbers in share.items() for number in numbers})
        for member_id, share in shares.items()
    }


def subscription_bytes(topics: list[str], owned: Owned, generation: int) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        by_topic.setdefault(topic, []).append(number)
    message = ConsumerProtocolSubscription(
        topics=topics,
        owned_partitions=[TopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
        generation_id=generation,
    )
    return VERSION.to_bytes(2, "big") + to_bytes(message, VERSION)


def share_bytes(partitions: Owned, user_data: bytes | None = None) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
        user_data=user_data,
    )
    return VERSION.to_bytes(2, "big") + to_bytes(assignment, VERSION)


def assigned(assignment: bytes) -> Owned:
    if not assignment:
        return set()
    message = decode(ConsumerProtocolAssignment, assignment, int.from_bytes(assignment[:2], "big"), 2)
    return {(topic.topic, number) for topic in message.assigned_partitions for number in topic.partitions}
