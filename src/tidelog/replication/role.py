"""What the controller has decided about one partition, as this broker is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.types import TopicId, TopicPartition

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Role:
    """Who leads a partition and who follows. Newer ones replace older ones: see `supersedes`."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    """Counts every change of the partition's state; a change of leader raises `leader_epoch` as well."""
    observers: tuple[int, ...] = ()
    """Replicas that follow without ever being waited for: they never join the in-sync replicas."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False

    def supersedes(self, leader_epoch: int, partition_epoch: int) -> bool:
        """Whether this came after what is known. The same once more is no news."""
        return (self.leader_epoch, self.partition_epoch) > (leader_epoch, partition_epoch)
