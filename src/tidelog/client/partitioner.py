"""Which partition a record goes to when its sender does not say: by key as every Kafka client does, else sticky."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from tidelog.records.key_hash import murmur2

Partitioner = Callable[[str, bytes | None, int, Sequence[int]], int]
"""From topic, key, number of partitions, and those that have a leader now, to one of the partitions."""

PartitionerName = Literal["murmur2", "random", "round_robin"]


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The sign bit is masked, not negated: that is what Java's clients do, and all must agree."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


class RandomPartitioner:
    """Spreads records evenly, whatever their keys."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self._random = dice or random.Random()  # noqa: S311 - spreads load, guards nothing

    def __call__(self, _topic: str, _key: bytes | None, _partition_count: int, available: Sequence[int]) -> int:
        return self._random.choice(available)


class RoundRobinPartitioner:
    """One partition after the other, whatever the keys."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(self, topic: str, _key: bytes | None, _partition_count: int, available: Sequence[int]) -> int:
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return available[turn % len(available)]


def named_partitioner(name: PartitionerName) -> Partitioner | None:
    """None stands for the usual one, which must know how full batches are."""
    if name == "random":
        return RandomPartitioner()
    return RoundRobinPartitioner() if name == "round_robin" else None


class StickyPartitioner:
    """Keyless records of a topic stay on one partition until its batch is full, so that batches fill up (KIP-480)."""

    __slots__ = ("_current", "_random")

    def __init__(self, dice: random.Random | None = None) -> None:
        self._current: dict[str, int] = {}
        self._random = dice or random.Random()  # noqa: S311 - spreads load, guards nothing

    def choose(self, topic: str, available: Sequence[int]) -> int:
        """One of `available`, the partitions that have a leader; the same as last time while that is possible."""
        current = self._current.get(topic)
        if current is None or current not in available:
            current = self._current[topic] = self._random.choice(available)
        return current

    def move_on(self, topic: str, available: Sequence[int]) -> None:
        """The current partition's batch is full: the next record starts another one elsewhere."""
        current = self._current.get(topic)
        others = [partition for partition in available if partition != current]
        if others:
            self._current[topic] = self._random.choice(others)
