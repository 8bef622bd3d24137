"""Incremental fetch sessions (KIP-227): the broker remembers what a reader wants and what it was last told.

A reader of a thousand quiet partitions then sends and gets a few bytes, not a thousand entries. Pure apart from the
random session ids: the caller brings the time.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.wire.messages.fetch import FetchRequest, PartitionData

SESSIONLESS_EPOCH = -1
FIRST_EPOCH = 0
NO_SESSION = 0
TOPIC_IDS_SINCE = 13

PartitionKey = tuple[Hashable, int]
"""Topic id (from Fetch v13) or topic name, and the partition's number."""


@dataclass(slots=True, eq=False)
class Wanted:
    """One partition that a reader wants, and what it was last told of it."""

    topic: str
    """Empty when the request names topics by id."""
    topic_id: bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int = -1
    """Of a follower's own log."""
    told_high_watermark: int = -1
    told_last_stable: int = -1
    told_log_start: int = -1
    note: Any = None
    """What whoever serves the reader keeps in mind of the partition, as long as the reader wants the same."""

    @property
    def key(self) -> PartitionKey:
        return (self.topic or self.topic_id, self.partition)

    def is_news(self, data: PartitionData) -> bool:
        """Whether the reader must hear of `data`; remembers it as told. An error is repeated until it is gone."""
        if data.error_code:
            self.told_high_watermark = -1
            return True
        told = (
            self.told_high_watermark == data.high_watermark
            and self.told_last_stable == data.last_stable_offset
            and self.told_log_start == data.log_start_offset
        )
        elsewhere = data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0
        if told and not data.records and not elsewhere:
            return False
        self.told_high_watermark = data.high_watermark
        self.told_last_stable = data.last_stable_offset
        self.told_log_start = data.log_start_offset
        return True


@dataclass(slots=True, eq=False)
class FetchSession:
    session_id: int
    by_topic_id: bool
    next_epoch: int
    last_used_ms: int
    partitions: dict[PartitionKey, Wanted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchScope:
    """What one fetch request is about: the partitions to read, in order, and how to answer."""

    session: FetchSession | None
    wanted: list[Wanted]
    incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session else NO_SESSION

    def select(self, results: Iterable[tuple[Wanted, PartitionData]]) -> list[tuple[Wanted, PartitionData]]:
        """What to put into the reply. In a session, partitions that gave data go to the back of the queue."""
        if self.session is None:
            return list(results)
        told = []
        order = self.session.partitions
        for wanted, data in results:
            if wanted.is_news(data) or not self.incremental:
                told.append((wanted, data))
            if data.records and wanted.key in order:
                order[wanted.key] = order.pop(wanted.key)
        return told


class FetchSessions:
    def __init__(
        self, slots: int, eviction_ms: int, new_id: Callable[[], int] = lambda: 1 + secrets.randbelow(2**31 - 1)
    ) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def scope(self, request: FetchRequest, version: int, now_ms: int) -> FetchScope:
        """Finds or opens the request's session. Raises with the error that belongs at the top of the reply."""
        if request.session_epoch in {SESSIONLESS_EPOCH, FIRST_EPOCH}:
            self._sessions.pop(request.session_id, None)
            wanted = wanted_partitions(request)
            if request.session_epoch == SESSIONLESS_EPOCH:
                return FetchScope(None, wanted, incremental=False)
            return FetchScope(self._open(wanted, version, now_ms), wanted, incremental=False)
        session = self._continue(request, version, now_ms)
        return FetchScope(session, list(session.partitions.values()), incremental=True)

    def _open(self, wanted: list[Wanted], version: int, now_ms: int) -> FetchSession | None:
        """A new session, or None when all slots are taken by sessions in use: the reader then goes on without."""
        if not wanted or not self._make_room(now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, version >= TOPIC_IDS_SINCE, 1, now_ms, {each.key: each for each in wanted})
        self._sessions[session_id] = session
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < self._eviction_ms:
            return False
        del self._sessions[oldest.session_id]
        return True

    def _continue(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.by_topic_id != (version >= TOPIC_IDS_SINCE):
            raise BrokerError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session names topics by id or by name, not both"
            )
        if request.session_epoch != session.next_epoch:
            raise BrokerError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.session_id} expects epoch {session.next_epoch}, got {request.session_epoch}",
            )
        session.next_epoch = 1 if session.next_epoch == 2**31 - 1 else session.next_epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        _update(session.partitions, request)
        return session


def wanted_partitions(request: FetchRequest) -> list[Wanted]:
    return [
        Wanted(
            topic.topic,
            topic.topic_id,
            part.partition,
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch,
            part.last_fetched_epoch,
            part.log_start_offset,
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def _update(partitions: dict[PartitionKey, Wanted], request: FetchRequest) -> None:
    for new in wanted_partitions(request):
        known = partitions.setdefault(new.key, new)
        asked = (
            new.fetch_offset,
            new.max_bytes,
            new.current_leader_epoch,
            new.last_fetched_epoch,
            new.log_start_offset,
        )
        if new.fetch_offset <= known.fetch_offset or new.current_leader_epoch != known.current_leader_epoch:
            # Only who has come further has surely taken what it was told last. Others may have thrown it away: they
            # have a new role, or have cut their log.
            known.told_high_watermark = -1
        known.note = None
        (
            known.fetch_offset,
            known.max_bytes,
            known.current_leader_epoch,
            known.last_fetched_epoch,
            known.log_start_offset,
        ) = asked
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            partitions.pop((topic.topic or topic.topic_id, partition), None)
