"""Moves one member one step towards its target, so that at no time two members may read a partition.

A member first gives up what it is to lose: it is told a smaller assignment, stays in its epoch, and until it says that
it has let go, what it loses stays its own. Then it enters the target's epoch and gets what is free; what others still
hold it gets with a later heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer_member import MemberState, Partitions, Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

NOTHING: frozenset[int] = frozenset()


def reconcile(
    position: Position,
    target_epoch: int,
    target: Partitions,
    readable: AbstractSet[bytes],
    owned: Partitions | None,
    is_free: Callable[[bytes, int], bool],
    *,
    subscription_changed: bool,
) -> Position:
    """The member's next position, or the same.

    `readable` are the topics it subscribes to, by id: the target may be older than its subscription. `owned` is what
    it says it has, None if it does not say. `is_free` tells whether nobody else has a partition.
    """
    if position.state is MemberState.UNREVOKED_PARTITIONS and _has_any(owned, position.revoking):
        return _drop_unreadable(position, readable, owned) if subscription_changed else position
    if position.is_settled_in(target_epoch):
        return _drop_unreadable(position, readable, owned) if subscription_changed else position
    return _step(position, target_epoch, target, readable, owned, is_free)


def _step(
    position: Position,
    target_epoch: int,
    target: Partitions,
    readable: AbstractSet[bytes],
    owned: Partitions | None,
    is_free: Callable[[bytes, int], bool],
) -> Position:
    kept: Partitions = {}
    lost: Partitions = {}
    for topic_id, numbers in position.assigned.items():
        wanted = target.get(topic_id, NOTHING) if topic_id in readable else NOTHING
        if keeps := numbers & wanted:
            kept[topic_id] = keeps
        if loses := numbers - wanted:
            lost[topic_id] = loses
    if lost and _has_any(owned, lost):
        return position.moved_to(position.epoch, MemberState.UNREVOKED_PARTITIONS, kept, lost)
    waiting = False
    given = dict(kept)
    for topic_id, numbers in target.items():
        if topic_id not in readable:
            continue
        missing = numbers - kept.get(topic_id, NOTHING)
        free = frozenset(number for number in missing if is_free(topic_id, number))
        waiting = waiting or len(free) < len(missing)
        if free:
            given[topic_id] = kept.get(topic_id, NOTHING) | free
    state = MemberState.UNRELEASED_PARTITIONS if waiting else MemberState.STABLE
    return position.moved_to(target_epoch, state, given, {})


def _drop_unreadable(position: Position, readable: AbstractSet[bytes], owned: Partitions | None) -> Position:
    """Takes away topics that the member has just unsubscribed from, before there is a new target."""
    lost = {topic_id: numbers for topic_id, numbers in position.assigned.items() if topic_id not in readable}
    if not lost:
        return position
    kept = {topic_id: numbers for topic_id, numbers in position.assigned.items() if topic_id in readable}
    revoking = dict(position.revoking)
    for topic_id, numbers in lost.items():
        revoking[topic_id] = revoking.get(topic_id, NOTHING) | numbers
    if _has_any(owned, revoking):
        return position.moved_to(position.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return position.moved_to(position.epoch, position.state, kept, {})


def _has_any(owned: Partitions | None, taken: Partitions) -> bool:
    """Whether the member may still be reading what is taken from it: it is, unless it says otherwise."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(taken.get(topic_id, NOTHING)) for topic_id, numbers in owned.items())
