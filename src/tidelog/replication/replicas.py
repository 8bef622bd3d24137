"""All partitions that this broker holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.errors import BrokerError, ErrorCode
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.config.topic import TopicConfig
    from tidelog.replication.group_commit import GroupCommit
    from tidelog.storage.store import LogStore
    from tidelog.types import TopicId, TopicPartition


class LeadershipWatcher(Protocol):
    """Somebody whose work follows the leadership of a topic's partitions, as a coordinator's does."""

    def leads(self, partition: Partition) -> None: ...

    def loses(self, partition: Partition) -> None: ...


class Replicas:
    def __init__(self, store: LogStore, local_id: int, commit: GroupCommit) -> None:
        self._store = store
        self._local_id = local_id
        self._commit = commit
        self._partitions: dict[TopicPartition, Partition] = {}
        self.watchers: dict[str, LeadershipWatcher] = {}
        """By topic: who is told when this broker comes to lead one of its partitions, or loses it."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def get(self, topic: str, partition: int) -> Partition:
        # A plain tuple finds the same entry as a TopicPartition, which takes longer to make than to look up.
        found: Partition | None = self._partitions.get((topic, partition))  # type: ignore[call-overload]
        if found is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no partition {partition} of topic {topic!r}"
            )
        return found

    def host(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        leader: int,
        leader_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
    ) -> None:
        """Opens or creates the partition's log and takes up the role given."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            log = self._store.logs.get(topic_partition) or self._store.create(topic_partition, topic_id, config)
            partition = Partition(log, self._local_id, self._commit, replicas)
            self._partitions[topic_partition] = partition
        partition.lead(leader, leader_epoch, replicas, isr)
        watcher = self.watchers.get(topic_partition.topic)
        if watcher and leader == self._local_id:
            watcher.leads(partition)

    def drop(self, topic_partition: TopicPartition) -> None:
        """Forgets the partition and deletes its log."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            watcher = self.watchers.get(topic_partition.topic)
            if watcher:
                watcher.loses(partition)
            partition.gone()
            self._store.delete(topic_partition)

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Gives the partitions of a topic new settings, effective at once."""
        for partition in self._partitions.values():
            if partition.topic_partition.topic == topic:
                partition.configure(config)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {each: partition.high_watermark for each, partition in self._partitions.items()}

    @property
    def commit(self) -> GroupCommit:
        return self._commit
