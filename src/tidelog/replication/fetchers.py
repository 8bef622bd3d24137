"""Who copies which partition from where: one fetcher for each leader, or a few. Fits `replicas.Following`."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from tidelog.replication.fetcher import Fetcher
from tidelog.replication.throttle import Allowance

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.clock import Clock
    from tidelog.replication.fetcher import FetchSettings
    from tidelog.replication.partition import Partition
    from tidelog.types import TopicPartition
    from tidelog.wire.declare import Message


class Fetchers:
    def __init__(
        self,
        local_id: int,
        broker_epoch: Callable[[], int],
        sender: Callable[[int], Callable[[int, Message], Awaitable[Any]]],
        clock: Clock,
        settings: Callable[[], FetchSettings],
    ) -> None:
        """`sender` gives a way to send for each fetcher of a leader, by number: a fetch that waits at the leader must
        not hold up another's. `settings` are those in force."""
        self.local_id = local_id
        self.broker_epoch = broker_epoch
        self.clock = clock
        self.settings = settings
        self.allowance = Allowance()
        """What throttled replicas may take."""
        self._sender = sender
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._fetcher_of: dict[TopicPartition, Fetcher] = {}

    def __len__(self) -> int:
        return len(self._fetcher_of)

    def follow(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        number = _spread(topic_partition) % self.settings().num_replica_fetchers
        key = (partition.leader, number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = Fetcher(partition.leader, self._sender(number), self)
        former = self._fetcher_of.get(topic_partition)
        if former is not None and former is not fetcher:
            former.remove(topic_partition)
        self._fetcher_of[topic_partition] = fetcher
        fetcher.add(partition)

    def unfollow(self, topic_partition: TopicPartition) -> None:
        fetcher = self._fetcher_of.pop(topic_partition, None)
        if fetcher is not None:
            fetcher.remove(topic_partition)

    async def stop(self) -> None:
        self._fetcher_of.clear()
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        for fetcher in fetchers:
            await fetcher.stop()


def _spread(topic_partition: TopicPartition) -> int:
    """The same in every process: a partition's fetcher should not depend on chance."""
    return zlib.crc32(topic_partition.topic.encode()) + topic_partition.partition
