"""The offsets that groups have committed: what the log says, and what open transactions may add to it.

Keyed by group id alone, whatever the group is or if it is at all: whoever manages partitions by himself commits under
a group id that nobody ever joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelog.coordinators.groups.pending_offsets import PendingOffsets, Place
from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.coordinators.decision import Decision

OFFSET_VALUE_VERSION = 3
EXPIRING_VALUE_VERSION = 1
"""The only version that has a time of its own at which the offset expires, as old clients may ask for."""

NO_EXPIRY = -1

Stored: TypeAlias = "tuple[OffsetCommitValue | None, ...]"
Topics: TypeAlias = "dict[str, dict[int, OffsetCommitValue]]"


class OffsetBook:
    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: PendingOffsets[OffsetCommitValue | None] = PendingOffsets()

    def __contains__(self, group_id: str) -> bool:
        """Whether the group has committed anything, even if that may not come to count."""
        return group_id in self._groups or self._pending.has_group(group_id)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._groups, *self._pending.groups()]))

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """All commits of the group, in the order in which they first came."""
        return self._groups.get(group_id, _NO_TOPICS)

    # --- what is stored ---

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = Place(key.group, key.topic, key.partition)
        if place in self._pending:
            self._pending.overtake(place)
        self._put(place, value)

    def _put(self, place: Place, value: OffsetCommitValue | None) -> None:
        if value is not None:
            self._groups.setdefault(place.group, {}).setdefault(place.topic, {})[place.partition] = value
            return
        topics = self._groups.get(place.group, {})
        partitions = topics.get(place.topic, {})
        partitions.pop(place.partition, None)
        if not partitions:
            topics.pop(place.topic, None)
        if not topics:
            self._groups.pop(place.group, None)

    # --- transactions ---

    def hold(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """A commit inside a transaction that is still open."""
        self._pending.hold(producer_id, Place(key.group, key.topic, key.partition), value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The transaction's marker is in the log."""
        for place, value in self._pending.end(producer_id, committed=committed):
            self._put(place, value)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change the offset."""
        return Place(group_id, topic, partition) in self._pending

    def is_held(self, group_id: str) -> bool:
        """Whether the group has a commit in an open transaction, and so must not be forgotten."""
        return self._pending.has_group(group_id)

    def of_topic(self, topic: str) -> Iterator[tuple[Place, Stored]]:
        """Every place of the topic, and what is there."""
        for group_id in self:
            committed = self.topics(group_id).get(topic, _NO_PARTITIONS)
            held = (place.partition for place in self._pending.of_group(group_id) if place.topic == topic)
            for partition in dict.fromkeys([*committed, *held]):
                place = Place(group_id, topic, partition)
                yield place, self.stored_at(place)

    def stored_at(self, place: Place) -> Stored:
        """Whatever was stored there and may count, now or once a transaction is committed."""
        committed = self.get(*place)
        return (*(() if committed is None else (committed,)), *self._pending.at(place))


_NO_TOPICS: Topics = {}
_NO_PARTITIONS: dict[int, OffsetCommitValue] = {}


class Burial:
    """Tombstones of offsets, as many as one batch can hold. What finds no room is for a later decision."""

    def __init__(self, bytes_max: int, out: Decision) -> None:
        self._bytes_left = bytes_max
        self._buried = False
        self._out = out

    def bury(self, group_id: str, topic: str, partition: int) -> bool:
        """False if there is no room. There is always room for the first, so that whoever tries again gets on."""
        needed = _TOMBSTONE_BYTES + len(group_id.encode()) + len(topic.encode())
        if needed > self._bytes_left and self._buried:
            return False
        self._buried = True
        self._bytes_left -= needed
        self._out.record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
        return True


_TOMBSTONE_BYTES = 32
"""What a tombstone takes beside the names, generously."""
