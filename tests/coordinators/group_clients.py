"""Clients of classic groups as a test plays them: they do what they are told, when they are told.

A client takes one step at a time: it joins, divides the partitions if it leads, asks for its share, reports. What it
holds is what it was last given, and it lets go of it as clients do: when it joins again or learns that it is out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from group_driver import GroupDriver, assignment, subscription

from tidelog.assign.ranges import classic_range
from tidelog.assign.subscriber import Subscriber
from tidelog.coordinators.groups.subscriptions import subscribed_topics
from tidelog.errors import ErrorCode
from tidelog.wire.codec import decode
from tidelog.wire.stored.consumer_protocol import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from tidelog.coordinators.decision import Ticket
    from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

Partition = tuple[str, int]


@dataclass(eq=False)
class Client:
    driver: GroupDriver
    group_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    version: int
    member_id: str = ""
    generation: int = -1
    roster: list[JoinGroupResponseMember] = field(default_factory=list)
    leads: bool = False
    joining: Ticket | None = None
    syncing: Ticket | None = None
    holds: frozenset[Partition] | None = None

    def step(self) -> None:
        """Does what a client does next."""
        if self.joining is not None:
            if not self.driver.waits(self.joining):
                self._joined(self.driver.joined(self.joining))
        elif self.syncing is not None:
            if not self.driver.waits(self.syncing):
                self._synced(self.syncing)
        elif self.holds is None and self.generation >= 0:
            self._sync()
        elif self.holds is None:
            self.join()

    def join(self) -> None:
        self.holds = None
        self.joining = self.driver.join(
            self.group_id,
            self.member_id,
            instance_id=self.instance_id,
            version=self.version,
            protocols={"range": subscription(*self.topics)},
        )

    def _joined(self, answer: JoinGroupResponse) -> None:
        self.joining, self.generation = None, -1
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads, self.roster = answer.leader == answer.member_id and not answer.skip_assignment, answer.members
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        else:
            self._learn(code)

    def _sync(self) -> None:
        shares = divide(self.driver, self.roster) if self.leads else {}
        self.syncing = self.driver.sync(
            self.group_id, self.member_id, self.generation, shares, instance_id=self.instance_id
        )

    def _synced(self, ticket: Ticket) -> None:
        self.syncing = None
        answer = self.driver.synced(ticket)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self.holds = read_assignment(answer.assignment)
        else:
            self._learn(code)

    def heartbeat(self) -> ErrorCode:
        code = ErrorCode(self.driver.heartbeat(self.group_id, self.member_id, self.generation, self.instance_id))
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.joining is None and self.syncing is None:
                self.join()
        else:
            self._learn(code)
        return code

    def commit(self, partition: Partition, offset: int) -> ErrorCode:
        """Commits, whether it may or not."""
        answer = self.driver.commit(
            self.group_id,
            {partition: offset},
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def _learn(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        self.holds, self.generation = None, -1
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self.member_id = ""


def divide(driver: GroupDriver, roster: list[JoinGroupResponseMember]) -> dict[str, bytes]:
    """What a leader does: each member gets its range of each topic it wants."""
    members = {}
    for member in roster:
        topics = subscribed_topics(member.metadata)
        assert topics is not None
        members[member.member_id] = Subscriber(topics)
    shares = classic_range(members, driver.topics.counts)
    return {member_id: assignment(partitions) for member_id, partitions in shares.items()}


def read_assignment(share: bytes) -> frozenset[Partition]:
    if not share:
        return frozenset()
    message = decode(ConsumerProtocolAssignment, share, 1, 2)
    return frozenset((topic.topic, number) for topic in message.assigned_partitions for number in topic.partitions)
