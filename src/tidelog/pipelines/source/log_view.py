"""What the driver asks brokers: which partitions there are, where they begin and end, how far a group has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.backoff import Deadline
from tidelog.client.errors import TimedOut, refusal
from tidelog.client.offsets import OffsetSpec, list_offsets
from tidelog.errors import ErrorCode
from tidelog.pipelines.source.errors import TopicMissing
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ConsumerConfig
    from tidelog.client.metadata import TopicMetadata
    from tidelog.pipelines.source.options import Subscription
    from tidelog.pipelines.source.positions import Positions
    from tidelog.types import TopicId

_ASK_AGAIN_AFTER_MS: Final = 2000
_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})

Partitions = dict[TopicPartition, "TopicId"]
"""Those that there are, each with the identity of its topic."""


class LogView:
    def __init__(self, cluster: Cluster, config: ConsumerConfig, subscription: Subscription) -> None:
        self._cluster = cluster
        self._config = config
        self._subscription = subscription

    async def partitions(self) -> Partitions:
        """What is subscribed to and exists now; topics that do not exist are left out."""
        topics = await self._cluster.retrying("looking up topics", self._topics)
        chosen = self._subscription.partitions
        found = {
            TopicPartition(topic.name, partition.index): topic.topic_id
            for topic in topics
            for partition in topic.partitions
        }
        return {each: found[each] for each in chosen if each in found} if chosen else found

    async def _topics(self) -> list[TopicMetadata]:
        subscription = self._subscription
        if subscription.pattern is not None:
            known = (await self._cluster.refresh_all()).topics.values()
            topics = [topic for topic in known if subscription.fits(topic.name) and not topic.internal]
        else:
            names = subscription.topics or {partition.topic for partition in subscription.partitions}
            await self._cluster.refresh(names)
            topics = [
                self._cluster.metadata.topics[name] for name in sorted(names) if name in self._cluster.metadata.topics
            ]
        for topic in topics:
            if topic.error and topic.error not in _MISSING:
                raise refusal(topic.error, about=f"topic {topic.name}")
        return [topic for topic in topics if not topic.error]

    async def existing_partitions(self) -> Partitions:
        """As `partitions`; TopicMissing when something that was named does not exist."""
        found = await self.partitions()
        topics = {partition.topic for partition in found}
        for name in self._subscription.topics:
            if name not in topics:
                raise TopicMissing(f"topic {name} does not exist: create it, or correct option subscribe")
        for partition in self._subscription.partitions:
            if partition not in found:
                raise TopicMissing(f"partition {partition} does not exist: correct option assign")
        return found

    async def earliest(self, partitions: Iterable[TopicPartition]) -> Positions:
        return await self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    async def latest(self, partitions: Iterable[TopicPartition]) -> Positions:
        """With read_committed, the end of what may be read."""
        return await self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    async def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Positions:
        """The first record that is not older; partitions where all are older are left out."""
        return await self._offsets({each: OffsetSpec.at_timestamp(at_ms) for each, at_ms in times_ms.items()})

    async def _offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> Positions:
        """Partitions that vanish meanwhile are left out."""
        if not wanted:
            return {}
        patience = Deadline(self._config.default_api_timeout_ms)
        while True:
            deadline = Deadline(min(_ASK_AGAIN_AFTER_MS, int(patience.remaining_s * 1000)))
            try:
                found = await list_offsets(self._cluster, wanted, deadline, committed_only=self._config.committed_only)
            except TimedOut:
                if patience.passed:
                    raise
                existing = await self.partitions()
                wanted = {partition: spec for partition, spec in wanted.items() if partition in existing}
                continue
            return {partition: answer.offset for partition, answer in found.items() if answer is not None}
