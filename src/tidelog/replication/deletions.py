"""Waiting until every live replica has deleted what was deleted on request.

A follower takes the leader's log start with one fetch, and says its own with the next. The smallest of all is the low
watermark: below it nobody can show a record any more, whoever leads next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tidelog.errors import BrokerError
    from tidelog.replication.partition import Partition
    from tidelog.replication.waiting import ProduceWait
    from tidelog.types import TopicPartition


def low_watermark(partition: Partition, live: Container[int]) -> int:
    """The offset below which no live replica has records, as their leader knows; -1 if one has not said."""
    low = partition.log.log_start_offset
    for replica in partition.replicas:
        if replica != partition.leader and replica in live:
            low = min(low, partition.follower(replica).start_offset)
    return low


class _Wait(NamedTuple):
    upto: int
    wait: ProduceWait
    live: Callable[[], Container[int]]


class DeletionWaits:
    """Those who wait for low watermarks of partitions led here."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: dict[TopicPartition, list[_Wait]] = {}

    def park(self, partition: Partition, upto: int, wait: ProduceWait, live: Callable[[], Container[int]]) -> bool:
        """Parks `wait` until the low watermark has reached `upto`; False if it has. `live` gives the live brokers."""
        if low_watermark(partition, live()) >= upto:
            return False
        place = partition.topic_partition
        wait.outstanding.add(place)
        self.waits.setdefault(place, []).append(_Wait(upto, wait, live))
        return True

    def forget(self, wait: ProduceWait) -> None:
        kept = {place: [each for each in waits if each.wait is not wait] for place, waits in self.waits.items()}
        self.waits = {place: waits for place, waits in kept.items() if waits}

    def look_at(self, partition: Partition) -> None:
        """A follower has said where its log starts."""
        place = partition.topic_partition
        waits = self.waits.pop(place, ())
        reached = [each for each in waits if low_watermark(partition, each.live()) >= each.upto]
        left = [each for each in waits if each not in reached]
        if left:
            self.waits[place] = left
        for each in reached:
            each.wait.reached(place)

    def fail(self, topic_partition: TopicPartition, error: BrokerError) -> None:
        """This broker leads the partition no longer."""
        for each in self.waits.pop(topic_partition, ()):
            each.wait.failed(topic_partition, error)
