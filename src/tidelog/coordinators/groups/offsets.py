"""The offsets that groups have committed: what the log says, and what open transactions may add to it.

Keyed by group id alone, whatever the group is or if it is at all: whoever manages partitions by himself commits under
a group id that nobody ever joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelog.wire.stored.classic_groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.coordinators.decision import Decision

OFFSET_VALUE_VERSION = 3
EXPIRING_VALUE_VERSION = 1
"""The only version that has a time of its own at which the offset expires, as old clients may ask for."""

NO_EXPIRY = -1

Topics: TypeAlias = "dict[str, dict[int, OffsetCommitValue]]"


class OffsetBook:
    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._open: dict[int, dict[tuple[str, str, int], OffsetCommitValue]] = {}
        """Commits that are part of a transaction, by producer id: they count once it is committed."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._groups))

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.topics(group_id).get(topic, _NO_PARTITIONS).get(partition)

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """All commits of the group, in the order in which they first came."""
        return self._groups.get(group_id, _NO_TOPICS)

    # --- what is stored ---

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            self._groups.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = value
            return
        topics = self._groups.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._groups.pop(key.group, None)

    # --- transactions ---

    def hold(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """A commit inside a transaction that is still open."""
        self._open.setdefault(producer_id, {})[key.group, key.topic, key.partition] = value

    def settle(self, producer_id: int, *, committed: bool) -> None:
        """The transaction's marker is in the log."""
        for (group, topic, partition), value in self._open.pop(producer_id, {}).items():
            if committed:
                self.apply(OffsetCommitKey(group=group, topic=topic, partition=partition), value)

    def unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change the offset."""
        if not self._open:
            return False
        return any((group_id, topic, partition) in commits for commits in self._open.values())

    def held(self, group_id: str) -> bool:
        """Whether the group has a commit in an open transaction, and so must not be forgotten."""
        return any(key[0] == group_id for commits in self._open.values() for key in commits)


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
