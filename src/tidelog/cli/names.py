"""Finds the topic that a user named, and helps when there is none of that name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.client.admin import Admin
    from tidelog.client.descriptions import TopicDescription
    from tidelog.types import TopicPartition


async def find_topic(admin: Admin, name: str) -> TopicDescription:
    return (await find_topics(admin, [name]))[0]


async def find_topics(admin: Admin, names: Sequence[str]) -> list[TopicDescription]:
    found = await admin.describe_topics(names)
    topics: list[TopicDescription] = []
    for name in names:
        outcome = found[name]
        if isinstance(outcome, BrokerError):
            if outcome.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise outcome
            existing = [topic.name for topic in await admin.list_topics(include_internal=True)]
            raise click.ClickException(unknown_topic(name, existing))
        topics.append(outcome)
    return topics


def unknown_topic(name: str, existing: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, existing, n=3, cutoff=0.6)
    if close:
        return f"there is no topic {name!r}: did you mean {' or '.join(map(repr, close))}?"
    return f"there is no topic {name!r}: create it with `tidelog topic create {name}`"


def choose_partitions(topic: TopicDescription, wanted: Sequence[int]) -> list[TopicPartition]:
    """The partitions named, or all of them."""
    partitions = topic.topic_partitions
    if not wanted:
        return partitions
    chosen = [partition for partition in partitions if partition.partition in set(wanted)]
    missing = sorted(set(wanted) - {partition.partition for partition in chosen})
    if missing:
        raise click.ClickException(
            f"topic {topic.name!r} has partitions 0 to {len(partitions) - 1}, not {', '.join(map(str, missing))}"
        )
    return chosen
