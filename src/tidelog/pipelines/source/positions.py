"""Positions as Spark's Kafka source writes them: {"orders": {"0": 12, "1": 7}}. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipelines.options import OptionError
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Positions = dict[TopicPartition, int]
"""The next offset to be read of each partition."""

LATEST: Final = -1
EARLIEST: Final = -2

Document = dict[str, dict[str, int]]


def to_document(positions: Mapping[TopicPartition, int]) -> Document:
    """Sorted, so that equal positions are equal text."""
    document: Document = {}
    for (topic, partition), offset in sorted(positions.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def parse_positions(option: str, text: str) -> Positions:
    """What a user wrote as an option; OptionError if it is not such a document."""
    expected = f'option {option} is JSON such as {{"orders": {{"0": 12, "1": 7}}}}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{expected}, which {text!r} is not: {error}") from error
    if not isinstance(found, dict) or not found or not all(isinstance(each, dict) for each in found.values()):
        raise OptionError(f"{expected}, not {text!r}")
    positions: Positions = {}
    for topic, offsets in found.items():
        for partition, offset in offsets.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise OptionError(f"{expected}; {partition!r}: {offset!r} of {topic} is not a partition's offset")
            positions[TopicPartition(topic, int(partition))] = offset
    return positions


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Partitions as `assign` takes them: {"orders": [0, 1]}."""
    expected = f'option {option} is JSON such as {{"orders": [0, 1]}}'
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{expected}, which {text!r} is not: {error}") from error
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{expected}, not {text!r}")
    partitions: set[TopicPartition] = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise OptionError(f"{expected}, not {text!r}")
        partitions.update(TopicPartition(topic, number) for number in numbers)
    return tuple(sorted(partitions))


def named(positions: Mapping[TopicPartition, int]) -> str:
    """For messages: the first few, by name."""
    return first_few([f"{partition} at offset {offset}" for partition, offset in sorted(positions.items())])


def first_few(parts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more
