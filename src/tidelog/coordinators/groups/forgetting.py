"""How offsets and groups end: they expire, somebody deletes them, or their topic is deleted.

Tombstones go out in portions that fit into one batch; a timer that is due at once brings the next portion:

    ("retention",)                looks for what has expired, now and again
    ("delete", group, ticket)     goes on deleting a group, and answers who asked for it when it is done
    ("deleted-topics",)           goes on with the offsets of topics that were deleted

Offsets go before their group, so that a portion always leaves a smaller group, never offsets of none. What an open
transaction may yet change does not expire, and its group is not deleted: a tombstone would overtake the transaction.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from tidelog.coordinators.groups.offsets import Burial
from tidelog.coordinators.groups.retention import expired, unread
from tidelog.errors import ErrorCode
from tidelog.wire.messages.delete_groups import DeletableGroupResult

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from tidelog.coordinators.decision import Decision, Ticket
    from tidelog.coordinators.groups.classic_groups import ClassicGroups
    from tidelog.coordinators.groups.config import GroupConfig
    from tidelog.coordinators.groups.consumer_groups import ConsumerGroups
    from tidelog.coordinators.groups.offsets import OffsetBook, Stored
    from tidelog.coordinators.groups.pending_offsets import Place

RETENTION: Final = "retention"
DELETE: Final = "delete"
DELETED_TOPICS: Final = "deleted-topics"


class Forgetting:
    def __init__(
        self, config: GroupConfig, classic: ClassicGroups, consumer: ConsumerGroups, offsets: OffsetBook
    ) -> None:
        self._config = config
        self._classic = classic
        self._consumer = consumer
        self._offsets = offsets
        self._doomed: deque[tuple[Place, Stored]] = deque()
        """Offsets of topics that were deleted. A newer commit at the same place is for a topic of the same name."""

    def begin(self, now_ms: int, out: Decision) -> None:
        out.arm((RETENTION,), now_ms + self._config.offsets_retention_check_interval_ms)

    def on_timer(self, key: Hashable, now_ms: int, out: Decision) -> bool:
        """Whether the timer was one of ours."""
        match key:
            case ("retention",):
                self._expire(now_ms, out)
            case ("delete", str(group_id), int(ticket)):
                self.delete_group(ticket, group_id, now_ms, out)
            case ("deleted-topics",):
                self._bury_doomed(now_ms, out)
            case _:
                return False
        return True

    def _burial(self, out: Decision) -> Burial:
        return Burial(self._config.record_bytes_max // 2, out)

    # --- retention ---

    def _expire(self, now_ms: int, out: Decision) -> None:
        """Buries what has expired, and groups that have neither members nor offsets any more."""
        burial = self._burial(out)
        groups = [group.group_id for kind in (self._classic, self._consumer) for group in kind]
        for group_id in dict.fromkeys([*self._offsets, *groups]):
            if not self._expire_group(group_id, burial, now_ms, out):
                out.arm((RETENTION,), now_ms)
                return
        self.begin(now_ms, out)

    def _expire_group(self, group_id: str, burial: Burial, now_ms: int, out: Decision) -> bool:
        """False if there was no room for all that has expired."""
        topics = self._offsets.topics(group_id)
        left = sum(map(len, topics.values()))
        for topic, partition in self._expired(group_id, now_ms):
            if not burial.bury(group_id, topic, partition):
                return False
            left -= 1
        if not left and not self._check_delete(group_id):
            self._end(group_id, out)
        return True

    def _expired(self, group_id: str, now_ms: int) -> Iterator[tuple[str, int]]:
        topics, retention_ms = self._offsets.topics(group_id), self._config.offsets_retention_ms
        if group_id not in self._consumer:
            due = expired(topics, self._classic.get(group_id), retention_ms, now_ms)
        else:
            due = unread(topics, lambda topic: self._consumer.subscribed_to(group_id, topic), -1, retention_ms, now_ms)
        return (place for place in due if not self._offsets.is_unstable(group_id, *place))

    def _check_delete(self, group_id: str) -> ErrorCode:
        if self._offsets.is_held(group_id):
            return ErrorCode.NON_EMPTY_GROUP
        group = self._classic.get(group_id)
        if group is not None:
            return ErrorCode.NONE if group.deletable else ErrorCode.NON_EMPTY_GROUP
        if group_id in self._consumer:
            return self._consumer.check_delete(group_id)
        return ErrorCode.NONE if group_id in self._offsets else ErrorCode.GROUP_ID_NOT_FOUND

    def _end(self, group_id: str, out: Decision) -> None:
        """Whoever only committed offsets has no more to be buried."""
        group = self._classic.get(group_id)
        if group is not None:
            self._classic.delete(group, out)
        elif group_id in self._consumer:
            self._consumer.delete(group_id, out)

    # --- DeleteGroups ---

    def delete_group(self, ticket: Ticket, group_id: str, now_ms: int, out: Decision) -> None:
        code = self._check_delete(group_id)
        if not code:
            burial = self._burial(out)
            for topic, partitions in self._offsets.topics(group_id).items():
                for partition in partitions:
                    if not burial.bury(group_id, topic, partition):
                        out.arm((DELETE, group_id, ticket), now_ms)
                        return
            self._end(group_id, out)
        out.reply(ticket, DeletableGroupResult(group_id=group_id, error_code=code))

    # --- deleted topics ---

    def forget_topics(self, deleted: Iterable[str], now_ms: int, out: Decision) -> None:
        """Also what is in open transactions: nobody can read on from there."""
        for topic in deleted:
            self._doomed.extend(self._offsets.of_topic(topic))
        self._bury_doomed(now_ms, out)

    def _bury_doomed(self, now_ms: int, out: Decision) -> None:
        burial = self._burial(out)
        while self._doomed:
            place, doomed = self._doomed[0]
            stored = self._offsets.stored_at(place)
            is_old = all(any(each is old for old in doomed) for each in stored)
            if stored and is_old and not burial.bury(*place):
                out.arm((DELETED_TOPICS,), now_ms)
                return
            self._doomed.popleft()
