"""The follower's side of an incremental fetch session (KIP-227): what the leader was told, and what it must hear now.

Pure. The first request names every partition; later ones only those that have changed and those that are wanted no
longer. Whenever the two sides might not agree, the follower begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.wire.messages.fetch import FetchResponse

FIRST_EPOCH = 0
LAST_EPOCH = 2**31 - 1
NO_SESSION = 0

Place = tuple[bytes, int]
"""Topic id and partition."""


class Asked(NamedTuple):
    """What a follower asks for in one partition."""

    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FollowerSession:
    __slots__ = ("_told", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self._told: dict[Place, Asked] = {}

    @property
    def is_new(self) -> bool:
        """Whether the next request must name everything."""
        return self.epoch == FIRST_EPOCH

    def tell(
        self, wanted: Iterable[tuple[Place, str, Asked]], unwanted: Iterable[tuple[Place, str]]
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """The next request's topics. In a session, `wanted` need not name what has not changed."""
        if self.is_new:
            self._told.clear()
        topics: dict[bytes, FetchTopic] = {}
        for place, name, asked in wanted:
            if self._told.get(place) == asked:
                continue
            self._told[place] = asked
            topic = topics.get(place[0])
            if topic is None:
                topic = topics[place[0]] = FetchTopic(topic=name, topic_id=place[0], partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=place[1],
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.fetch_offset,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    log_start_offset=asked.log_start_offset,
                    partition_max_bytes=asked.max_bytes,
                )
            )
        forgotten: dict[bytes, ForgottenTopic] = {}
        for place, name in unwanted:
            if self._told.pop(place, None) is not None:
                topic_id, partition = place
                entry = forgotten.setdefault(topic_id, ForgottenTopic(topic=name, topic_id=topic_id, partitions=[]))
                entry.partitions.append(partition)
        return list(topics.values()), list(forgotten.values())

    def name_again(self, place: Place) -> None:
        """The next request names this partition even if nothing about it has changed."""
        self._told.pop(place, None)

    def answered(self, response: FetchResponse) -> None:
        """The request was answered without an error: the session goes on, if the leader has one."""
        if response.session_id == NO_SESSION or (not self.is_new and response.session_id != self.session_id):
            self.begin_anew()
            return
        self.session_id = response.session_id
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def begin_anew(self) -> None:
        """The session is kept in mind: naming it in the first request of the next one closes it at the leader."""
        self.epoch = FIRST_EPOCH
