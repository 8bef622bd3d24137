"""Which committed offsets have expired (KIP-211).

    nobody ever joined           counted from the commit
    the group is Empty           counted from when it became so, or from a commit since then
    members, all Stable          only topics that no member reads, counted from the commit
    members, in a rebalance      nothing: what they will read is not known

A commit that came with a time of its own expires then, once its group would let it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic_group import GroupState
from tidelog.coordinators.groups.offsets import NO_EXPIRY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidelog.coordinators.groups.classic_group import ClassicGroup
    from tidelog.wire.stored.classic_groups import OffsetCommitValue


def expired(
    topics: Mapping[str, Mapping[int, OffsetCommitValue]],
    group: ClassicGroup | None,
    retention_ms: int,
    now_ms: int,
) -> Iterator[tuple[str, int]]:
    """The expired partitions of a group that is classic, or that nobody ever joined."""
    if group is None or group.protocol_type is None:
        return unread(topics, lambda _topic: False, -1, retention_ms, now_ms)
    if group.state is GroupState.EMPTY:
        return unread(topics, lambda _topic: False, group.state_since_ms, retention_ms, now_ms)
    if group.state is GroupState.STABLE and group.uses_consumer_protocol:
        return unread(topics, _lazily_subscribed(group), -1, retention_ms, now_ms)
    return iter(())


def unread(
    topics: Mapping[str, Mapping[int, OffsetCommitValue]],
    subscribed_to: Callable[[str], bool],
    since_ms: int,
    retention_ms: int,
    now_ms: int,
) -> Iterator[tuple[str, int]]:
    """Partitions that nobody reads, counted from the commit, or from `since_ms` if that is later."""
    for topic, partitions in topics.items():
        due = [
            partition
            for partition, committed in partitions.items()
            if _is_due(committed, since_ms, retention_ms, now_ms)
        ]
        if due and not subscribed_to(topic):
            for partition in due:
                yield topic, partition


def _is_due(committed: OffsetCommitValue, since_ms: int, retention_ms: int, now_ms: int) -> bool:
    if committed.expire_timestamp != NO_EXPIRY:
        return now_ms >= committed.expire_timestamp
    return now_ms - max(committed.commit_timestamp, since_ms) >= retention_ms


def _lazily_subscribed(group: ClassicGroup) -> Callable[[str], bool]:
    """Subscriptions are read out of the members' bytes: only if something is due, and then once."""
    known: list[frozenset[str] | None] = []

    def subscribed_to(topic: str) -> bool:
        if not known:
            known.append(group.subscribed_topics())
        return known[0] is None or topic in known[0]

    return subscribed_to
