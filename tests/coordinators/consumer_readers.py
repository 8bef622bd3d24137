"""Members of groups of the newer protocol, as their clients behave, over a driver that runs the shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_driver import GroupDriver, id_of, through_bytes

from tidelog.coordinators.groups.consumer_table import ConsumerTable
from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.wire.stored import consumer_groups as stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.decision import StoredRecord
    from tidelog.coordinators.groups.consumer_group import ConsumerGroup
    from tidelog.coordinators.groups.consumer_member import Partitions

GROUP = "g"
REBALANCE_MS = 60_000
HEARTBEAT_MS = 5_000

OUT_OF_THE_GROUP = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}

Owned = set[tuple[str, int]]
"""Partitions by topic name and number."""

KINDS = {
    stored.ConsumerGroupMetadataKey: 3,
    stored.ConsumerGroupPartitionMetadataKey: 4,
    stored.ConsumerGroupMemberMetadataKey: 5,
    stored.ConsumerGroupTargetAssignmentMetadataKey: 6,
    stored.ConsumerGroupTargetAssignmentMemberKey: 7,
    stored.ConsumerGroupCurrentMemberAssignmentKey: 8,
}


class ConsumerDriver(GroupDriver):
    def beat(
        self, member_id: str, epoch: int, *, version: int = 1, client_id: str = "client", **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat; what is not given is not said."""
        fields.setdefault("group_id", GROUP)
        request = ConsumerGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields)
        return self.reply(self.ask(request, version, client_id), ConsumerGroupHeartbeatResponse)

    def enter_new(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Joins and says everything."""
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        fields.setdefault("subscribed_topic_names", list(topics or ("t",)))
        fields.setdefault("topic_partitions", [])
        return self.beat(member_id, 0, **fields)

    def kinds_since(self, mark: int) -> list[str]:
        """The types of the records since the log was so long; tombstones with a minus."""
        return [("-" if record.value is None else "") + str(record.key_version) for record in self.log[mark:]]

    def consumer_describe(self, group_id: str = GROUP) -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        return self.reply(self.ask(request, 1), DescribedGroup)

    def replayed(self) -> ConsumerTable:
        return replay(self.log, self.config)

    def stored_ids(self) -> set[str]:
        """Groups of the newer protocol, as the records say."""
        return set(self.replayed().groups)

    def group(self) -> ConsumerGroup:
        """The group as its records say."""
        return self.replayed().groups[GROUP]


class Reader:
    """A client that reads what it is given, lets go of what it is told to, and says so with its next heartbeat.

    Whenever it says what it owns, that includes what it was told to read and might begin with at any moment: an answer
    to this heartbeat may be lost, and it would begin with what the coordinator then takes for free.
    """

    def __init__(self, driver: ConsumerDriver, member_id: str, *topics: str, instance_id: str | None = None) -> None:
        self.driver = driver
        self.member_id = member_id
        self.topics = list(topics or ("t",))
        self.instance_id = instance_id
        self.epoch = 0
        self.reading: Owned = set()
        """What it may be reading."""
        self.told: Owned | None = None
        """What it was last told to read, unless it has done so."""
        self.says: Owned | None = None
        """What it last said it owns, None if it must say everything again."""
        self.interval_ms = 0

    @property
    def may_read(self) -> Owned:
        return self.reading | (self.told or set())

    def beat(self, *, lose_reply: bool = False) -> int:
        """Sends a heartbeat and, unless the reply is lost, does nothing yet of what it says. Gives the error code."""
        joining = self.epoch == 0
        if joining:
            self.reading, self.told, self.says = set(), None, None
        full = joining or self.says is None
        owned = self.may_read
        news = self.says is None or not self.reading <= self.says <= owned
        reply = self.driver.beat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=self.topics if full else None,
            topic_partitions=owned_message(owned) if full or news else None,
        )
        if lose_reply:
            self.says = None
            return ErrorCode.NONE
        if reply.error_code in {
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        }:
            self.epoch = 0
            self.reading, self.told, self.says = set(), None, None
            return reply.error_code
        if reply.error_code:
            self.says = None
            return reply.error_code
        if full or news:
            self.says = owned
        self.epoch = reply.member_epoch
        self.interval_ms = reply.heartbeat_interval_ms
        if reply.assignment is not None:
            self.told = owned_of(reply, self.driver)
        return ErrorCode.NONE

    def obey(self) -> None:
        """Does what it was told: lets go of what is not its any more, and begins with what is new."""
        if self.told is not None:
            self.reading, self.told = set(self.told), None

    def subscribe(self, *topics: str) -> None:
        self.topics = list(topics)
        self.says = None

    def leave(self, epoch: int = -1) -> int:
        reply = self.driver.beat(self.member_id, epoch, instance_id=self.instance_id)
        self.epoch = 0
        self.reading, self.told, self.says = set(), None, None
        return reply.error_code


def settle(readers: Iterable[Reader], rounds: int = 12) -> None:
    """Lets everyone report and obey as often as a group needs to come to rest."""
    readers = list(readers)
    for _ in range(rounds):
        for reader in readers:
            reader.beat()
            reader.obey()
        if readers:
            readers[0].driver.advance(HEARTBEAT_MS)


def owned_message(owned: Owned) -> list[TopicPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        topics.setdefault(topic, []).append(number)
    return [TopicPartitions(topic_id=id_of(topic), partitions=numbers) for topic, numbers in topics.items()]


def owned_of(reply: ConsumerGroupHeartbeatResponse, driver: GroupDriver) -> Owned:
    assert reply.assignment is not None
    return {
        (driver.topics.name(topic.topic_id) or topic.topic_id.rstrip(b"\1").decode(), number)
        for topic in reply.assignment.topic_partitions
        for number in topic.partitions
    }


def replay(log: Iterable[StoredRecord], config: Any) -> ConsumerTable:
    table = ConsumerTable(config)
    for record in log:
        table.apply(*through_bytes(record))
    return table


def compacted(log: list[StoredRecord]) -> list[StoredRecord]:
    """What the log cleaner leaves: the last record of each key, where it was."""
    last = {repr(record.key): place for place, record in enumerate(log)}
    return [record for place, record in enumerate(log) if last[repr(record.key)] == place]


def durable(table: ConsumerTable) -> dict[str, Any]:
    """All that is stored of all groups, in a form that can be compared."""
    return {
        group.group_id: {
            "epoch": group.epoch,
            "target epoch": group.target_epoch,
            "topics": group.topics,
            "target": group.target,
            "statics": group.static_ids,
            "subscriptions": dict(group.subscriptions),
            "classic": group.classic_members,
            "members": {name: (member.profile, member.position) for name, member in group.members.items()},
            "owners": {
                (topic_id, number): group.owner(topic_id, number)
                for member in group.members.values()
                for partitions in (member.position.assigned, member.position.revoking)
                for topic_id, numbers in partitions.items()
                for number in numbers
            },
        }
        for group in table.groups.values()
    }


def numbers(partitions: Partitions | Mapping[bytes, frozenset[int]], topic: str = "t") -> set[int]:
    return set(partitions.get(id_of(topic), frozenset()))
