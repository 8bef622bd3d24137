"""Divides the partitions of a group anew: which topics there are to divide, and who is to have what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.assign import SERVER_SIDE, Subscriber
from tidelog.coordinators.groups.consumer_records import TopicFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.groups.consumer_member import Partitions, Profile, Subscription
    from tidelog.coordinators.groups.regex import TopicPatterns
    from tidelog.coordinators.groups.topics import ClusterTopics

PAUSE_PER_MEMBER_MS = 5
PAUSE_MAX_MS = 1000


def pause_ms(members: int) -> int:
    """How long a target lasts at least.

    The work of making one grows with the members, and so does the number of members that start at once. With a pause in
    proportion, a hundred members that join together are divided a few times and not a hundred times; what a member
    misses during the pause it gets with a later heartbeat.
    """
    return min(members * PAUSE_PER_MEMBER_MS, PAUSE_MAX_MS)


def topic_names(subscription: Subscription, patterns: TopicPatterns) -> frozenset[str]:
    if not subscription.pattern:
        return subscription.topics
    return subscription.topics | patterns.matching(subscription.pattern)


def topic_facts(
    subscriptions: Iterable[Subscription], topics: ClusterTopics, patterns: TopicPatterns
) -> dict[str, TopicFacts]:
    """What the group's members subscribe to, as far as it exists."""
    names: set[str] = set()
    for subscription in subscriptions:
        names |= topic_names(subscription, patterns)
    found: dict[str, TopicFacts] = {}
    for name in names:
        topic_id, partitions = topics.topic_id(name), topics.partitions(name)
        if topic_id is not None and partitions is not None:
            found[name] = TopicFacts(topic_id, partitions)
    return found


def divide(
    profiles: Mapping[str, Profile],
    current: Mapping[str, Partitions],
    topics: Mapping[str, TopicFacts],
    patterns: TopicPatterns,
    assignor: str,
) -> dict[str, Partitions]:
    """The new target of every member, made from the `current` one so that little moves."""
    known: dict[Subscription, frozenset[bytes]] = {}
    subscribers: dict[str, Subscriber[bytes]] = {}
    for member_id, profile in profiles.items():
        subscription = profile.subscription
        readable = known.get(subscription)
        if readable is None:
            readable = known[subscription] = readable_ids(subscription, topics, patterns)
        subscribers[member_id] = Subscriber(readable, current.get(member_id, {}), instance_id=profile.instance_id)
    counts = {facts.topic_id: facts.partitions for facts in topics.values()}
    shares = SERVER_SIDE[assignor](subscribers, counts)
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in share.items()}
        for member_id, share in shares.items()
    }


def readable_ids(
    subscription: Subscription, topics: Mapping[str, TopicFacts], patterns: TopicPatterns
) -> frozenset[bytes]:
    names = topic_names(subscription, patterns)
    return frozenset(topics[name].topic_id for name in names if name in topics)
