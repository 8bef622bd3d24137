"""All partitions that this broker holds, and the roles it has in them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn, Protocol

from tidelog.clock import SystemClock
from tidelog.errors import BrokerError, ErrorCode
from tidelog.replication.deletions import DeletionWaits
from tidelog.replication.isr import DEFAULT_BOUNDS
from tidelog.replication.partition import Partition
from tidelog.replication.role import Role
from tidelog.replication.throttle import Allowance
from tidelog.replication.waiting import FollowerFetches
from tidelog.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.clock import Clock
    from tidelog.config.topic import TopicConfig
    from tidelog.replication.group_commit import GroupCommit
    from tidelog.replication.isr import LagBounds
    from tidelog.storage.log import Log
    from tidelog.storage.store import LogStore
    from tidelog.types import TopicId, TopicPartition

logger = logging.getLogger(__name__)


class LeadershipWatcher(Protocol):
    """Somebody whose work follows the leadership of a topic's partitions, as a coordinator's does."""

    def leads(self, partition: Partition) -> None: ...

    def loses(self, partition: Partition) -> None: ...


class Following(Protocol):
    """Who fetches from leaders."""

    def follow(self, partition: Partition) -> None:
        """`partition` has a leader to fetch from: a new one, or a new reign of the same."""

    def unfollow(self, topic_partition: TopicPartition) -> None: ...


class IsrProposals(Protocol):
    """Who asks the controller for other in-sync replicas."""

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None: ...


class Replicas:
    def __init__(
        self,
        store: LogStore,
        local_id: int,
        commit: GroupCommit,
        *,
        clock: Clock | None = None,
        bounds: LagBounds = DEFAULT_BOUNDS,
    ) -> None:
        self._store = store
        self._local_id = local_id
        self._commit = commit
        self._clock: Clock = clock or SystemClock()
        self._bounds = bounds
        self._partitions: dict[TopicPartition, Partition] = {}
        self._names: dict[TopicId, str] = {}
        self._follower_fetches: dict[int, FollowerFetches] = {}
        self.deletions = DeletionWaits()
        self.leader_allowance = Allowance()
        """What may be sent to throttled replicas."""
        self.watchers: dict[str, LeadershipWatcher] = {}
        """By topic: who is told when this broker comes to lead one of its partitions, or loses it."""
        self.following: Following | None = None
        self.proposals: IsrProposals | None = None
        self.observers_of: Callable[[Partition], tuple[int, ...]] | None = None
        """Which replicas of a partition are observers, by its topic's settings and brokers' racks. Without it, those
        whom roles name."""
        self.knows: Callable[[str, int], bool] = lambda _topic, _partition: False
        """Whether the cluster has a partition that is not here: then others should be asked for it."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def get(self, topic: str, partition: int) -> Partition:
        # A plain tuple finds the same entry as a TopicPartition, which takes longer to make than to look up.
        found: Partition | None = self._partitions.get((topic, partition))  # type: ignore[call-overload]
        if found is None:
            if self.knows(topic, partition):
                raise BrokerError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {partition} of topic {topic!r} is on other brokers"
                )
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no partition {partition} of topic {topic!r}"
            )
        return found

    def leader_epoch_of(self, topic_partition: TopicPartition) -> int | None:
        """Of the role in a partition; None without one."""
        found = self._partitions.get(topic_partition)
        return None if found is None else found.leader_epoch

    def name_of(self, topic_id: bytes) -> str | None:
        """Of a topic that a role was given for, perhaps before the cluster's image knows it."""
        return self._names.get(topic_id)  # type: ignore[call-overload, no-any-return] # looked up by its base type

    # --- roles ---

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
        """Takes up a role by a broker's own decision: each is newer than the one before."""
        known = self._partitions.get(topic_partition)
        partition_epoch = known.partition_epoch + 1 if known else 0
        self.take_role(Role(topic_partition, topic_id, leader, leader_epoch, isr, replicas, partition_epoch), config)

    def take_role(self, role: Role, config: TopicConfig) -> bool:
        """Opens or creates the partition's log and takes up the role. False if the role is not a newer one.

        A log that has failed can neither lead nor follow: KAFKA_STORAGE_ERROR, whatever the role.
        """
        partition = self._partitions.get(role.topic_partition)
        if partition is not None and partition.log.topic_id != role.topic_id:
            logger.warning("%s: the topic was deleted and created again: its old log goes", role.topic_partition)
            self.stop(role.topic_partition, delete=True)
            partition = None
        if partition is None:
            partition = self._open(role, config)
        if partition.log.failure is not None:
            self._retire(partition, role)
        led, reign = partition.leads, partition.leader_epoch
        if partition.log.config != config:
            partition.configure(config)
        if not partition.become(role, self.now_ms()):
            return False
        self._refresh_observers(partition)
        self._tell(partition, led=led, new_reign=role.leader_epoch != reign)
        return True

    def _retire(self, partition: Partition, role: Role) -> NoReturn:
        led = partition.leads
        partition.retire(role)
        if self.following is not None:
            self.following.unfollow(partition.topic_partition)
        if led and not partition.leads:
            self._lost(partition)
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"its log is out of service: {partition.log.failure}")

    def _open(self, role: Role, config: TopicConfig) -> Partition:
        place, store = role.topic_partition, self._store
        log = self._log_of(role) or store.create(place, role.topic_id, config)
        partition = Partition(
            log,
            self._local_id,
            self._commit,
            role.replicas,
            known_high_watermark=store.high_watermarks.get(place, 0),
            bounds=self._bounds,
            propose=self._propose,
        )
        self._partitions[place] = partition
        self._names[log.topic_id] = place.topic
        return partition

    def _log_of(self, role: Role) -> Log | None:
        """The log that is there, if it is this topic's."""
        place, store = role.topic_partition, self._store
        log = store.logs.get(place)
        if log is None or log.topic_id == role.topic_id:
            return log
        if log.topic_id == ZERO_TOPIC_ID:
            log.adopt(role.topic_id)
            return log
        logger.warning("%s: the log is of an earlier topic of this name, it is kept as %s", place, store.stray(place))
        return None

    def _tell(self, partition: Partition, *, led: bool, new_reign: bool) -> None:
        place = partition.topic_partition
        if self.following is not None:
            if partition.follows:
                self.following.follow(partition)
            else:
                self.following.unfollow(place)
        if partition.leads and new_reign:
            for replica in partition.replicas:
                if replica != self._local_id:
                    self.fetches_of(replica).expect_news(self.now_ms())
        if led and not partition.leads:
            self._lost(partition)
        watcher = self.watchers.get(place.topic)
        if watcher is not None and partition.leads and not led:
            watcher.leads(partition)

    def _lost(self, partition: Partition) -> None:
        place = partition.topic_partition
        self.deletions.fail(place, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{place} is not led here any more"))
        watcher = self.watchers.get(place.topic)
        if watcher is not None:
            watcher.loses(partition)

    def stop(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Holds the partition no longer; its log stays for a later role, or is deleted."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is None:
            if delete and topic_partition in self._store.logs:
                self._store.delete(topic_partition)
            return
        if self.following is not None:
            self.following.unfollow(topic_partition)
        if partition.leads:
            self._lost(partition)
        if delete:
            self._names.pop(partition.log.topic_id, None)
            partition.gone(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} was deleted"))
            self._store.delete(topic_partition)
        else:
            self._store.high_watermarks[topic_partition] = partition.high_watermark
            partition.gone(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} is no longer here"))

    def without_role(self) -> list[tuple[TopicPartition, TopicId]]:
        """The logs on disk that this broker was given no role for, and the ids of their topics."""
        return [(each, log.topic_id) for each, log in self._store.logs.items() if each not in self._partitions]

    def put_away(self, topic_partition: TopicPartition) -> str:
        """Parts with a log that the cluster does not have here. Gives the path under which it is kept for a while."""
        assert topic_partition not in self._partitions, "it has a role here"
        return self._store.stray(topic_partition)

    def drop(self, topic_partition: TopicPartition) -> None:
        """Forgets the partition and deletes its log."""
        self.stop(topic_partition, delete=True)

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Gives the partitions of a topic new settings, effective at once."""
        for partition in self._partitions.values():
            if partition.topic_partition.topic == topic:
                partition.configure(config)
                self._refresh_observers(partition)

    # --- in-sync replicas ---

    def now_ms(self) -> int:
        """Milliseconds that never go back: by these, followers are late or not."""
        return round(self._clock.monotonic() * 1000)

    def refresh_observers(self) -> None:
        """Brokers have come, or racks have changed."""
        if self.observers_of is not None:
            for partition in self._partitions.values():
                self._refresh_observers(partition)

    def _refresh_observers(self, partition: Partition) -> None:
        if self.observers_of is not None and (partition.observers or partition.log.config.tidelog_observer_racks):
            partition.observe(self.observers_of(partition))

    def check_lag(self) -> None:
        """Has followers proposed for removal who have not kept up, in all partitions led here."""
        now_ms = self.now_ms()
        for partition in self._partitions.values():
            partition.check_lag(now_ms)

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        if self.proposals is not None:
            self.proposals.propose(partition, isr)

    def fetches_of(self, replica_id: int) -> FollowerFetches:
        """The waiting fetches of another broker that follows partitions led here."""
        found = self._follower_fetches.get(replica_id)
        if found is None:
            found = self._follower_fetches[replica_id] = FollowerFetches()
        return found

    # --- for those who write things down ---

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of all logs here, also of those that no role was given for yet."""
        current = {each: partition.high_watermark for each, partition in self._partitions.items()}
        return {**self._store.high_watermarks, **current}

    @property
    def commit(self) -> GroupCommit:
        return self._commit
