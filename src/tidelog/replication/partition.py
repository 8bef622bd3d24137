"""One partition as this broker holds it: its log, its leadership, its high watermark.

The high watermark is the offset below which records are safe and may be read. With `fsync before ack` it moves only
after an fsync, so that no consumer ever reads, and no producer is ever promised, what a crash could take back.
Without it, it moves with the log's end.

Runs on the event loop; no method awaits, so each is one step nobody can see the middle of.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.records.header import BatchHeader
    from tidelog.replication.group_commit import GroupCommit
    from tidelog.replication.waiting import FetchWait, ProduceWait
    from tidelog.storage.log import Appended, Log
    from tidelog.storage.segment import LogSlice
    from tidelog.types import TopicPartition


def must_be_durable(config: TopicConfig, replicas: int) -> bool:
    """Whether records wait for an fsync: `auto` means where no other replica could make up for a crash."""
    wish = config.tidelog_fsync_before_ack
    return wish == "true" or (wish == "auto" and replicas == 1)


class Partition:
    __slots__ = (
        "_appended_bytes",
        "_commit",
        "_durable",
        "_fetch_waits",
        "_local_id",
        "_produce_waits",
        "_visible_bytes",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "replicas",
        "topic_partition",
    )

    def __init__(self, log: Log, local_id: int, commit: GroupCommit, replicas: tuple[int, ...]) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.leader = -1
        self.leader_epoch = -1
        self.replicas = replicas
        self.isr: tuple[int, ...] = ()
        self._local_id = local_id
        self._commit = commit
        self._durable = must_be_durable(log.config, len(replicas))
        """Records must be on disk before they count. Otherwise they are left to the page cache, and to
        `flush.messages` and `flush.ms`."""
        self.high_watermark: int = log.flushed_offset if self._durable else log.log_end_offset
        self._appended_bytes = 0
        self._visible_bytes = 0
        self._produce_waits: deque[tuple[int, ProduceWait]] = deque()
        self._fetch_waits: set[FetchWait] = set()
        if self._durable and log.flushed_offset < log.log_end_offset:
            # Recovered from the page cache of a killed process: real, but not yet safe from a power failure.
            commit.request(self)

    # --- leadership ---

    def lead(self, leader: int, leader_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        self.leader, self.leader_epoch, self.replicas, self.isr = leader, leader_epoch, replicas, isr

    def configure(self, config: TopicConfig) -> None:
        """Takes new settings, effective at once."""
        self.log.config = config
        self._durable = must_be_durable(config, len(self.replicas))
        if not self._durable:
            self._advance(self.log.log_end_offset, self._appended_bytes)

    @property
    def last_stable_offset(self) -> int:
        """What read_committed readers may see. There are no transactions yet, so nothing holds it back."""
        return self.high_watermark

    def check_leader(self, claimed_epoch: int = -1) -> None:
        """Refuses a request meant for another leader, or for another reign of this one (KIP-320)."""
        if self.leader != self._local_id:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {self.leader}")
        if claimed_epoch < 0 or claimed_epoch == self.leader_epoch:
            return
        if claimed_epoch < self.leader_epoch:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic_partition} is at leader epoch {self.leader_epoch}, not {claimed_epoch}: refresh metadata",
            )
        raise BrokerError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic_partition} is still at leader epoch {self.leader_epoch}, not yet {claimed_epoch}: retry",
        )

    # --- writing ---

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int, *, all_replicas: bool) -> Appended:
        """Takes one checked batch. When it is safe, `await_safe` tells."""
        self.check_leader()
        log = self.log
        if all_replicas and len(self.isr) < self._in_sync_wanted():
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas of the {self._in_sync_wanted()} that "
                "min.insync.replicas asks for",
            )
        appended = log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.duplicate:
            self._appended_bytes += len(batch)
            if self._durable:
                self._commit.request(self)
            else:
                self._advance(log.log_end_offset, self._appended_bytes)
                if log.unflushed_messages >= log.config.flush_messages:
                    self._commit.request(self)
        return appended

    def _in_sync_wanted(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas: Kafka cannot be asked for the impossible."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def await_safe(self, last_offset: int, wait: ProduceWait) -> bool:
        """Parks `wait` until the high watermark has passed `last_offset`; False if it has already."""
        if last_offset < self.high_watermark:
            return False
        if self.log.failure:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.log.failure)
        wait.outstanding.add(self.topic_partition)
        self._produce_waits.append((last_offset, wait))
        return True

    # --- what group commit calls ---

    def mark(self) -> int:
        """Taken when an fsync begins and given back when it ends: how many bytes it covers."""
        return self._appended_bytes

    def synced(self, mark: int) -> None:
        if self._durable:
            self._advance(self.log.flushed_offset, mark)

    def sync_failed(self, error: BrokerError) -> None:
        """The disk refused: nobody who waits can be promised anything."""
        waits, self._produce_waits = self._produce_waits, deque()
        for _offset, wait in waits:
            wait.failed(self.topic_partition, error)
        self.wake_readers()

    def _advance(self, high_watermark: int, visible_bytes: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        news = visible_bytes - self._visible_bytes
        self._visible_bytes = visible_bytes
        waits = self._produce_waits
        while waits and waits[0][0] < high_watermark:
            waits.popleft()[1].reached(self.topic_partition)
        if self._fetch_waits:
            for fetch_wait in tuple(self._fetch_waits):
                fetch_wait.more(news)

    # --- reading ---

    def read(self, offset: int, max_bytes: int, *, min_one: bool, committed_only: bool) -> LogSlice | None:
        upto = self.last_stable_offset if committed_only else self.high_watermark
        return self.log.read(offset, max_bytes, upto, min_one=min_one)

    def watch(self, wait: FetchWait) -> None:
        self._fetch_waits.add(wait)
        wait.partitions.append(self)

    def wake_readers(self) -> None:
        """Has waiting fetches answered with what there is."""
        for wait in tuple(self._fetch_waits):
            wait.wake()

    def unwatch(self, wait: FetchWait) -> None:
        self._fetch_waits.discard(wait)

    # --- changes from outside ---

    def delete_records(self, before: int) -> int:
        """Moves the log's start up to `before` (-1: the high watermark) and gives the new start."""
        self.check_leader()
        config = self.log.config
        if config.cleanup_policy == frozenset({"compact"}):
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION, f"{self.topic_partition} is compacted only: records cannot be deleted"
            )
        target = self.high_watermark if before == -1 else before
        if target < 0 or target > self.high_watermark:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} can be cut up to its high watermark {self.high_watermark}, not {before}",
            )
        self.log.advance_log_start(target)
        return self.log.log_start_offset

    def apply_retention(self, now_ms: int) -> int:
        """Deletes what is too old or too much, but nothing that is not yet safe; gives the number of segments."""
        return self.log.apply_retention(now_ms, self.high_watermark)

    def gone(self) -> None:
        """The topic is deleted: those who wait are told."""
        error = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted")
        self.leader = -1
        self.sync_failed(error)
