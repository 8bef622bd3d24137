"""One partition as this broker holds it: its log, its role, its high watermark.

The high watermark is the offset below which records are safe and may be read. With one replica and `fsync before ack`
it moves only after an fsync, so that no consumer ever reads, and no producer is ever promised, what a crash could take
back; without it, it moves with the log's end. With several replicas it moves when all in-sync replicas have the
records; a follower learns it from its leader.

Runs on the event loop; no method awaits, so each is one step nobody can see the middle of.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.records.control import MARKER_BYTES
from tidelog.replication import divergence
from tidelog.replication.isr import DEFAULT_BOUNDS
from tidelog.replication.leading import Leading
from tidelog.replication.role import NO_LEADER
from tidelog.replication.stable_readers import StableReaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.topic import TopicConfig
    from tidelog.records.control import Marker
    from tidelog.records.header import BatchHeader
    from tidelog.replication.group_commit import GroupCommit
    from tidelog.replication.isr import Follower, LagBounds
    from tidelog.replication.role import Role
    from tidelog.replication.waiting import FetchWait, ProduceWait
    from tidelog.storage.epochs import EpochEnd
    from tidelog.storage.log import Appended, Log
    from tidelog.storage.segment import LogSlice
    from tidelog.storage.verification import Guard
    from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


def must_be_durable(config: TopicConfig, replicas: int) -> bool:
    """Whether records wait for an fsync: `auto` means where no other replica could make up for a crash."""
    wish = config.tidelog_fsync_before_ack
    return wish == "true" or (wish == "auto" and replicas == 1)


def _nobody_to_ask(partition: Partition, isr: tuple[int, ...]) -> None:
    """Stands in for the controller where there is none: proposals stay proposals."""


class Partition:
    __slots__ = (
        "_appended_bytes",
        "_bounds",
        "_commit",
        "_durable",
        "_end_waits",
        "_fetch_waits",
        "_flush_waits",
        "_leading",
        "_local_id",
        "_produce_waits",
        "_propose",
        "_stable_readers",
        "_visible_bytes",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "observers",
        "partition_epoch",
        "replicas",
        "topic_partition",
    )

    def __init__(
        self,
        log: Log,
        local_id: int,
        commit: GroupCommit,
        replicas: tuple[int, ...],
        *,
        known_high_watermark: int = 0,
        bounds: LagBounds = DEFAULT_BOUNDS,
        propose: Callable[[Partition, tuple[int, ...]], None] = _nobody_to_ask,
    ) -> None:
        """`known_high_watermark` was written down before a restart; it counts only where others have replicas too.

        `propose` has the controller asked for another set of in-sync replicas.
        """
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas = replicas
        self.isr: tuple[int, ...] = ()
        """As the controller has confirmed it."""
        self.observers: tuple[int, ...] = ()
        self._local_id = local_id
        self._commit = commit
        self._bounds = bounds
        self._propose = propose
        self._leading: Leading | None = None
        """What is known of the followers, while this broker leads and there are any."""
        self._durable = must_be_durable(log.config, len(replicas))
        """Records must be on disk before they count. Otherwise they are left to the page cache, and to
        `flush.messages` and `flush.ms`."""
        if len(replicas) > 1:
            self.high_watermark = max(min(known_high_watermark, log.log_end_offset), log.log_start_offset)
        else:
            self.high_watermark = log.flushed_offset if self._durable else log.log_end_offset
        log.producers.transactions.settle(self.high_watermark)
        self._appended_bytes = 0
        self._visible_bytes = 0
        self._produce_waits: deque[tuple[int, ProduceWait]] = deque()
        self._flush_waits: deque[tuple[int, ProduceWait]] = deque()
        """For an fsync here, whoever else has the records."""
        # Dictionaries, for they keep their order: whoever waited longer is answered first.
        self._fetch_waits: dict[FetchWait, None] = {}
        self._stable_readers = StableReaders()
        self._end_waits: dict[FetchWait, None] = {}
        """Of followers, who read to the log's end."""
        if self._durable and log.flushed_offset < log.log_end_offset:
            # Recovered from the page cache of a killed process: real, but not yet safe from a power failure.
            commit.request(self)

    # --- the role ---

    @property
    def leads(self) -> bool:
        return self.leader == self._local_id

    @property
    def follows(self) -> bool:
        """Whether there is a leader to fetch from."""
        return self.leader not in {NO_LEADER, self._local_id}

    def become(self, role: Role, now_ms: int) -> bool:
        """Takes up a role. False, and nothing changes, if it is not newer than the one in force.

        `now_ms` here and below never goes back: it is not the time of day.
        """
        if not role.supersedes(self.leader_epoch, self.partition_epoch):
            return False
        if role.leader_epoch < self.log.last_leader_epoch:
            logger.warning("%s: the log has seen a later reign than %s", self.topic_partition, role)
            return False
        led, new_reign = self.leads, role.leader_epoch != self.leader_epoch
        self.leader, self.leader_epoch, self.partition_epoch = role.leader, role.leader_epoch, role.partition_epoch
        self.replicas, self.isr, self.observers = role.replicas, role.isr, role.observers
        self._durable = must_be_durable(self.log.config, len(role.replicas))
        if self.leads:
            self._lead(role, now_ms, new_reign=new_reign or not led)
        else:
            if led:
                self._leading = None
                self._let_go(
                    BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {role.leader} now")
                )
            self._forget_unwritten_reigns()
        return True

    def retire(self, role: Role) -> None:
        """Its log has failed: if the role is another's, leaves the partition to it. Nothing is written."""
        if role.leader == self._local_id or not role.supersedes(self.leader_epoch, self.partition_epoch):
            return
        self.leader, self.leader_epoch, self.partition_epoch = role.leader, role.leader_epoch, role.partition_epoch
        self.replicas, self.isr, self.observers = role.replicas, role.isr, role.observers
        self._leading = None
        self._let_go(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {role.leader}"))

    def _lead(self, role: Role, now_ms: int, *, new_reign: bool) -> None:
        log = self.log
        if len(role.replicas) == 1:
            self._leading = None
        elif new_reign or self._leading is None:
            # Before the first record: a follower may ask where an epoch ended that this log never saw.
            log.epochs.assign(role.leader_epoch, log.log_end_offset)
            self._leading = Leading(self._local_id, role, log.log_end_offset, now_ms, self._bounds)
        else:
            self._leading.take(role)
        if self._durable and log.flushed_offset < log.log_end_offset:
            self._commit.request(self)
        self._refresh_high_watermark()

    def observe(self, observers: tuple[int, ...]) -> None:
        """Takes which of the replicas are observers from now on."""
        self.observers = observers
        if self._leading is not None:
            self._leading.observe(observers)
            self._refresh_high_watermark()

    def _forget_unwritten_reigns(self) -> None:
        """A reign here that wrote nothing is unknown to others: the next records belong to somebody else's."""
        log = self.log
        log.epochs.truncate_end(log.log_end_offset)
        if log.last_leader_epoch < 0 and log.log_start_offset < log.log_end_offset:
            logger.warning("%s: the leader epochs are not known, cutting back to what is safe", self.topic_partition)
            log.truncate_to(self.high_watermark)

    def configure(self, config: TopicConfig) -> None:
        """Takes new settings, effective at once."""
        self.log.config = config
        self._durable = must_be_durable(config, len(self.replicas))
        self._refresh_high_watermark()

    @property
    def last_stable_offset(self) -> int:
        """What read_committed readers may see: nothing of a transaction before it is known how it ended."""
        unstable = self.log.producers.transactions.first_unstable_offset
        if unstable >= self.high_watermark:
            return self.high_watermark
        # Records may have been deleted from under a transaction.
        return max(unstable, min(self.log.log_start_offset, self.high_watermark))

    def check_leader(self, claimed_epoch: int = -1) -> None:
        """Refuses a request meant for another leader, or for another reign of this one (KIP-320)."""
        if self.leader != self._local_id:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {self.leader}")
        if claimed_epoch >= 0 and claimed_epoch != self.leader_epoch:
            self._refuse_epoch(claimed_epoch)

    def check_replica(self, claimed_epoch: int = -1) -> None:
        """As `check_leader`, but a follower will do: for consumers who may read from one (KIP-392)."""
        if self.leader_epoch < 0 or self._local_id not in self.replicas:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is not replicated here")
        if claimed_epoch >= 0 and claimed_epoch != self.leader_epoch:
            self._refuse_epoch(claimed_epoch)

    def _refuse_epoch(self, claimed_epoch: int) -> None:
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

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        all_replicas: bool,
        guard: Guard | None = None,
    ) -> Appended:
        """Takes one checked batch. When it is safe, `await_safe` tells. `now_ms` is the time of day.

        One that begins a transaction needs the `guard` that was taken before its coordinator vouched for it.
        """
        self.check_leader()
        if all_replicas and len(self.isr) < self._in_sync_wanted():
            raise self._too_few(ErrorCode.NOT_ENOUGH_REPLICAS)
        appended = self.log.append(batch, header, self.leader_epoch, now_ms, guard)
        if not appended.duplicate:
            self._grew(len(batch))
        return appended

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, now_ms: int, *, transaction_version: int
    ) -> Appended:
        """Ends a producer's transaction here, as its coordinator has decided. When that is safe, `await_safe` tells."""
        self.check_leader()
        if len(self.isr) < self._in_sync_wanted():
            raise self._too_few(ErrorCode.NOT_ENOUGH_REPLICAS)
        appended = self.log.append_marker(
            marker, producer_id, producer_epoch, self.leader_epoch, now_ms, transaction_version=transaction_version
        )
        self._grew(MARKER_BYTES)
        return appended

    def _grew(self, size: int) -> None:
        log = self.log
        self._appended_bytes += size
        if self._leading is not None:
            self._appended_for_followers(size)
        elif self._durable:
            self._commit.request(self)
        else:
            self._advance(log.log_end_offset, self._appended_bytes)
            if log.unflushed_messages >= log.config.flush_messages:
                self._commit.request(self)

    def _appended_for_followers(self, size: int) -> None:
        if self._end_waits:
            for wait in tuple(self._end_waits):
                wait.more(size)
        if self._durable or self.log.unflushed_messages >= self.log.config.flush_messages:
            self._commit.request(self)
        self._refresh_high_watermark()

    def _in_sync_wanted(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas: Kafka cannot be asked for the impossible."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def _too_few(self, code: ErrorCode) -> BrokerError:
        return BrokerError(
            code,
            f"{self.topic_partition} has {len(self.isr)} in-sync replicas of the {self._in_sync_wanted()} that "
            "min.insync.replicas asks for",
        )

    def await_safe(self, last_offset: int, wait: ProduceWait, *, all_replicas: bool = True) -> bool:
        """Parks `wait` until the high watermark has passed `last_offset`; False if it has already.

        Without `all_replicas`, as acks=1 asks, it is enough that this broker has it as safe as it keeps things.
        """
        if last_offset < self.high_watermark:
            return False
        if self.log.failure:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, self.log.failure)
        waits = self._produce_waits
        if not all_replicas and self._leading is not None:
            if not self._durable or last_offset < self.log.flushed_offset:
                return False
            waits = self._flush_waits
        wait.outstanding.add(self.topic_partition)
        waits.append((last_offset, wait))
        return True

    def await_durable(self, wait: ProduceWait) -> bool:
        """Parks `wait` until all there is now is on disk, if this partition's records must be; False if they are.

        For a follower: the offset it asks for next is its promise to have all before.
        """
        log = self.log
        if not self._durable or log.flushed_offset >= log.log_end_offset or log.failure:
            return False
        wait.outstanding.add(self.topic_partition)
        self._flush_waits.append((log.log_end_offset - 1, wait))
        # Whoever appended has asked for it, but a sync that is under way while the log is cut does not count.
        self._commit.request(self)
        return True

    # --- what group commit calls ---

    def mark(self) -> int:
        """Taken when an fsync begins and given back when it ends: how many bytes it covers."""
        return self._appended_bytes

    def synced(self, mark: int) -> None:
        if self._leading is None:
            if self._durable and self.leads:
                self._advance(self.log.flushed_offset, mark)
        else:
            self._refresh_high_watermark()
        waits = self._flush_waits
        while waits and waits[0][0] < self.log.flushed_offset:
            waits.popleft()[1].reached(self.topic_partition)

    def sync_failed(self, error: BrokerError) -> None:
        """The disk refused: nobody who waits can be promised anything."""
        self._let_go(error)

    def _let_go(self, error: BrokerError) -> None:
        """Those who wait for something to become safe are told that it will not, readers what there is now."""
        waits = [*self._produce_waits, *self._flush_waits]
        self._produce_waits.clear()
        self._flush_waits.clear()
        for _offset, wait in waits:
            wait.failed(self.topic_partition, error)
        self.wake_readers()

    # --- the high watermark ---

    def _refresh_high_watermark(self) -> None:
        """Moves it to where it may be, on the leader."""
        if not self.leads:
            return
        own_end = self.log.flushed_offset if self._durable else self.log.log_end_offset
        self._show(own_end if self._leading is None else self._leading.safe_end(own_end))

    def _show(self, high_watermark: int) -> None:
        """As `_advance`, where nobody counted the bytes below `high_watermark`: they are estimated."""
        gained = high_watermark - self.high_watermark
        if gained > 0:
            hidden_bytes = self._appended_bytes - self._visible_bytes
            hidden = max(self.log.log_end_offset - self.high_watermark, 1)
            self._advance(high_watermark, self._visible_bytes + max(gained, hidden_bytes * gained // hidden))

    def _advance(self, high_watermark: int, visible_bytes: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        news = visible_bytes - self._visible_bytes
        self._visible_bytes = visible_bytes
        waits = self._produce_waits
        if self._leading is not None and waits and len(self.isr) < self._in_sync_wanted():
            self._fail_waits(high_watermark)
        while waits and waits[0][0] < high_watermark:
            waits.popleft()[1].reached(self.topic_partition)
        if self._fetch_waits:
            for fetch_wait in tuple(self._fetch_waits):
                fetch_wait.more(news)
        transactions = self.log.producers.transactions
        if transactions.first_unstable_offset < high_watermark:
            transactions.settle(high_watermark)
        if self._stable_readers.waits:
            self._stable_readers.tell(self.last_stable_offset, high_watermark, visible_bytes)

    def _fail_waits(self, high_watermark: int) -> None:
        """All in-sync replicas have the records, but they have become too few for that to be a promise."""
        error = self._too_few(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        while self._produce_waits and self._produce_waits[0][0] < high_watermark:
            self._produce_waits.popleft()[1].failed(self.topic_partition, error)

    # --- followers, as their leader sees them ---

    def fetched(self, replica_id: int, fetch_offset: int, now_ms: int, broker_epoch: int = -1) -> None:
        """A follower, whose log was found to agree with this one, asks for `fetch_offset`: it has all before."""
        leading = self._leading
        if leading is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has no followers here")
        leading.fetched(replica_id, fetch_offset, self.log.log_end_offset, now_ms, broker_epoch)
        self._refresh_high_watermark()
        self._grow(leading)

    def follower(self, replica_id: int) -> Follower:
        """What is known of a follower. Raises unless this broker leads and that one has a replica."""
        if self._leading is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has no followers here")
        return self._leading.follower(replica_id)

    def readable_followers(self) -> list[tuple[int, Follower]]:
        """Those from whom consumers may be told to read: in sync, or observers. Others could lag more and more."""
        followers = self._leading.followers if self._leading is not None else {}
        return [(each, found) for each, found in followers.items() if each in self.isr or each in self.observers]

    def check_lag(self, now_ms: int) -> None:
        """Has those proposed for removal who have not kept up."""
        leading = self._leading
        if leading is not None:
            isr = leading.shrinkage(self.log.log_end_offset, now_ms)
            if isr is not None:
                logger.info("%s: in sync are only %s of %s", self.topic_partition, isr, self.isr)
                leading.propose(isr)
                self._propose(self, isr)
            self._refresh_high_watermark()

    def _grow(self, leading: Leading) -> None:
        isr = leading.growth(self.log.log_end_offset, self.high_watermark)
        if isr is not None:
            leading.propose(isr)
            self._propose(self, isr)

    def isr_confirmed(self, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has set the in-sync replicas. Answers from before a newer role do not count."""
        leading = self._leading
        if leading is None or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return
        self.isr, self.partition_epoch = isr, partition_epoch
        leading.confirm(isr)
        self._refresh_high_watermark()
        self._grow(leading)

    def isr_refused(self, leader_epoch: int) -> None:
        """The controller has left the in-sync replicas as they were."""
        if self._leading is not None and leader_epoch == self.leader_epoch:
            self._leading.withdraw()
            self._refresh_high_watermark()

    @property
    def proposed_isr(self) -> tuple[int, ...] | None:
        return self._leading.in_sync.proposed if self._leading is not None else None

    # --- following ---

    def followed(
        self, records: bytes | bytearray | memoryview, high_watermark: int, log_start: int, now_ms: int
    ) -> int:
        """Takes what the leader sent: records, and what it knows. Gives how many bytes were taken.

        `now_ms` is the time of day.
        """
        assert self.follows, "only a follower takes what a leader sends"
        log = self.log
        size = 0
        if records:
            size = log.append_as_follower(records, now_ms).size_bytes
            self._appended_bytes += size
            if self._durable or log.unflushed_messages >= log.config.flush_messages:
                self._commit.request(self)
        if log_start > log.log_start_offset:
            log.follow_log_start(log_start)
        self._show(max(min(high_watermark, log.log_end_offset), log.log_start_offset))
        return size

    def cut_back(self, leaders: EpochEnd) -> None:
        """The leader's log went another way after `leaders`: what differs is thrown away."""
        log = self.log
        self._cut_to(divergence.cut_at(leaders, log.end_offset_for_epoch(leaders.epoch), log.log_end_offset))

    def _cut_to(self, offset: int) -> None:
        if offset < self.high_watermark:
            logger.warning(
                "%s: cutting to %d, below the high watermark %d: an unclean election lost records",
                self.topic_partition,
                offset,
                self.high_watermark,
            )
        self.log.truncate_to(offset)
        self._was_cut()

    def start_over(self, offset: int) -> None:
        """The leader has nothing that could follow what is here: begin anew where it begins."""
        self.log.truncate_fully_and_start_at(offset)
        self._was_cut()

    def _was_cut(self) -> None:
        log = self.log
        self.high_watermark = max(min(self.high_watermark, log.log_end_offset), log.log_start_offset)
        log.producers.transactions.settle(self.high_watermark)
        # What somebody wanted to see on disk is gone.
        waits, self._flush_waits = self._flush_waits, deque()
        for _offset, wait in waits:
            wait.reached(self.topic_partition)

    # --- reading ---

    def read(self, offset: int, max_bytes: int, *, min_one: bool, committed_only: bool) -> LogSlice | None:
        upto = self.last_stable_offset if committed_only else self.high_watermark
        return self.log.read(offset, max_bytes, upto, min_one=min_one)

    def read_as_replica(self, offset: int, max_bytes: int, *, min_one: bool) -> LogSlice | None:
        """To the log's end: how else should records become safe."""
        return self.log.read(offset, max_bytes, self.log.log_end_offset, min_one=min_one)

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
        """Where a reader's log stopped being this one; None if it is the same as far as it goes."""
        own_end = self.log.end_offset_for_epoch(last_fetched_epoch)
        return divergence.leaders_answer(last_fetched_epoch, fetch_offset, own_end)

    def watch(self, wait: FetchWait, *, committed_only: bool = False) -> None:
        if committed_only:
            self._stable_readers.watch(wait, self.last_stable_offset, self._visible_bytes)
        else:
            self._fetch_waits[wait] = None
        wait.partitions.append(self)

    def watch_end(self, wait: FetchWait) -> None:
        """As `watch`, for a follower: it need not wait until records are safe."""
        self._end_waits[wait] = None
        wait.partitions.append(self)

    def wake_readers(self) -> None:
        """Has waiting fetches answered with what there is."""
        for wait in (*self._fetch_waits, *self._stable_readers.waits, *self._end_waits):
            wait.wake()

    def unwatch(self, wait: FetchWait) -> None:
        self._fetch_waits.pop(wait, None)
        self._stable_readers.waits.pop(wait, None)
        self._end_waits.pop(wait, None)

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

    def gone(self, error: BrokerError) -> None:
        """This broker holds the partition no longer: those who wait are told why."""
        self.leader = NO_LEADER
        self._leading = None
        self._let_go(error)
