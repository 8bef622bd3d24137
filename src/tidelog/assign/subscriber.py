"""What an assignor is told of a member, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Topic = TypeVar("Topic", str, bytes)
"""A topic's name or its id: assignors only compare and sort them."""


@dataclass(frozen=True, slots=True)
class Subscriber(Generic[Topic]):
    topics: frozenset[Topic]
    owned: Mapping[Topic, Collection[int]] = field(default_factory=dict)
    """What the member has now. Assignors that are not sticky do not look at it."""
    generation: int = -1
    """When `owned` was given to it; of two members that say they own a partition, the later one does."""
    instance_id: str | None = None


Share = dict[Topic, list[int]]
"""The partitions of one member. A topic of which it has none is not in it."""

Assignment = dict[str, Share[Topic]]
"""The shares of all members, also of those that get nothing."""

Assignor = Callable[[Mapping[str, Subscriber[Topic]], Mapping[Topic, int]], Assignment[Topic]]
"""From members by id, and the number of partitions of each topic that exists."""


def in_order(members: Mapping[str, Subscriber[Topic]]) -> list[str]:
    """Static members first, by instance id: they keep their place when they come back under a new member id."""

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)


def same_topics(members: Mapping[str, Subscriber[Topic]]) -> bool:
    """Whether all members subscribe to the same topics, as those of most groups do."""
    subscriptions = iter(members.values())
    first = next(subscriptions, None)
    return first is None or all(other.topics is first.topics or other.topics == first.topics for other in subscriptions)


def subscribers_by_topic(
    members: Mapping[str, Subscriber[Topic]], order: list[str], partitions: Mapping[Topic, int]
) -> dict[Topic, list[str]]:
    """The members, in order, that subscribe to each topic that exists; topics in order of their names."""
    if same_topics(members):  # one list, shared: a thousand topics cost no more than one
        topics = members[order[0]].topics if order else ()
        return {topic: order for topic in sorted(topics) if topic in partitions}
    subscribers: dict[Topic, list[str]] = {}
    for member_id in order:
        for topic in members[member_id].topics:
            if topic in partitions:
                subscribers.setdefault(topic, []).append(member_id)
    return {topic: subscribers[topic] for topic in sorted(subscribers)}
