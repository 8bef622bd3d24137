"""How offsets to be read become tasks. Pure."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.types import TopicPartition


class OffsetRange(NamedTuple):
    """Of one partition, `end` not included."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def split(ranges: Sequence[OffsetRange], fewest: int | None, largest: int | None) -> list[OffsetRange]:
    """At least `fewest` ranges, if there are offsets enough, none with more than `largest` offsets.

    Large ranges are cut into more pieces than small ones; pieces of one range differ by one offset at most.
    """
    ranges = [each for each in ranges if each.size > 0]
    if largest is not None:
        ranges = [piece for each in ranges for piece in _cut(each, -(-each.size // largest))]
    if fewest is not None and len(ranges) < fewest:
        counts = _piece_counts([each.size for each in ranges], fewest)
        ranges = [piece for each, count in zip(ranges, counts, strict=True) for piece in _cut(each, count)]
    return ranges


def bundle(ranges: Sequence[OffsetRange], most: int, small: int) -> list[tuple[OffsetRange, ...]]:
    """Ranges that one task reads one after the other: each its own, unless there are more than `most` and all of them
    together are `small`. Then there are `most` tasks of about the same number of offsets.

    A task costs Spark more than a few records do, and topics may have many partitions.
    """
    if len(ranges) <= most or sum(each.size for each in ranges) > small:
        return [(each,) for each in ranges]
    bundles: list[list[OffsetRange]] = [[] for _ in range(most)]
    smallest_first = [(0, index) for index in range(most)]
    for each in sorted(ranges, key=lambda one: one.size, reverse=True):
        size, index = smallest_first[0]
        bundles[index].append(each)
        heapq.heapreplace(smallest_first, (size + each.size, index))
    return [tuple(sorted(each)) for each in bundles]


def _piece_counts(sizes: Sequence[int], wanted: int) -> list[int]:
    """Each gets one; each further piece goes to the range whose pieces are the largest then."""
    counts = [1] * len(sizes)
    largest_first: list[tuple[float, int]] = [(-size, index) for index, size in enumerate(sizes)]
    heapq.heapify(largest_first)
    for _ in range(min(wanted, sum(sizes)) - len(sizes)):
        _, index = largest_first[0]
        counts[index] += 1
        heapq.heapreplace(largest_first, (-sizes[index] / counts[index], index))
    return counts


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * index // pieces for index in range(pieces + 1)]
    return [OffsetRange(whole.partition, begin, end) for begin, end in itertools.pairwise(bounds) if begin < end]
