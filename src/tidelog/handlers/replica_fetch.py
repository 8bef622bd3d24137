"""Fetch, as followers ask for it: to the log's end, and each fetch says how far the follower has come.

Only brokers of this cluster may fetch as replicas, each as itself: whoever could pretend to be a follower could make
records count as safe that are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.fetch_reply import empty, refused, shape, size_of, topic_name
from tidelog.handlers.handler import Answer, Context, Waiting
from tidelog.replication.fetch_sessions import TOPIC_IDS_SINCE
from tidelog.replication.throttle import is_throttled
from tidelog.replication.waiting import FetchWait
from tidelog.wire.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from tidelog.replication.fetch_sessions import FetchScope, Wanted
    from tidelog.replication.isr import Follower
    from tidelog.replication.partition import Partition


class _Known(NamedTuple):
    """A partition as it was when a follower's fetch was last looked at in full."""

    partition: Partition
    follower: Follower
    partition_epoch: int


class ReplicaFetch:
    """One fetch of a follower, until it is answered."""

    __slots__ = ("_ctx", "_replica_epoch", "_replica_id", "_req", "_scope", "bytes_read", "partitions", "urgent")

    def __init__(self, ctx: Context, req: FetchRequest, scope: FetchScope, replica_id: int, replica_epoch: int) -> None:
        self._ctx = ctx
        self._req = req
        self._scope = scope
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self.partitions: list[Partition] = []
        self.bytes_read = 0
        self.urgent = False
        """Something cannot wait: an error, or a log that has diverged."""

    def read(self, *, arrived: bool) -> list[tuple[Wanted, PartitionData]]:
        """What there is to tell. When the fetch has just `arrived`, it also says how far the follower is."""
        replicas = self._ctx.services.replicas
        now_ms = replicas.now_ms()
        self.partitions.clear()
        self.bytes_read = 0
        left = min(self._req.max_bytes, self._ctx.services.config.fetch_max_bytes)
        results: list[tuple[Wanted, PartitionData]] = []
        quiet_counts = not replicas.deletions.waits
        for wanted in self._scope.wanted:
            known: _Known | None = wanted.note
            if known is not None and quiet_counts and self._is_quiet(wanted, known):
                if arrived:
                    known.follower.still_at_the_end(now_ms)
                self.partitions.append(known.partition)
                continue
            try:
                data = self._look_at(wanted, left, now_ms, arrived=arrived)
            except BrokerError as error:
                self.urgent = True
                data = empty(wanted.partition, error)
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    # Where the follower will have to begin.
                    data.log_start_offset = replicas.get(self._topic(wanted), wanted.partition).log.log_start_offset
            else:
                size = size_of(data)
                left -= size
                self.bytes_read += size
            results.append((wanted, data))
        return results

    def _is_quiet(self, wanted: Wanted, known: _Known) -> bool:
        """Whether nothing has changed since the follower had everything and was told everything.

        Most partitions are quiet most of the time, and one fetch in a session is about all of them. One that is no
        longer here has no leader; new reigns, other replicas and other lives of the follower's broker show in epochs.
        """
        partition, follower = known.partition, known.follower
        log = partition.log
        return (
            log.log_end_offset == wanted.fetch_offset
            and partition.high_watermark == wanted.told_high_watermark
            and log.log_start_offset == wanted.told_log_start
            and partition.leader == self._ctx.services.broker_id
            and partition.leader_epoch == wanted.current_leader_epoch
            and partition.partition_epoch == known.partition_epoch
            and follower.in_sync
            and follower.broker_epoch == self._replica_epoch
            and log.failure is None
        )

    def _topic(self, wanted: Wanted) -> str:
        return topic_name(self._ctx, wanted.topic_id) if self._ctx.version >= TOPIC_IDS_SINCE else wanted.topic

    def _look_at(self, wanted: Wanted, left: int, now_ms: int, *, arrived: bool) -> PartitionData:
        partition = self._ctx.services.replicas.get(self._topic(wanted), wanted.partition)
        partition.check_leader()
        if wanted.current_leader_epoch < 0:
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, "a follower must say whose reign it follows")
        partition.check_leader(wanted.current_leader_epoch)
        follower = partition.follower(self._replica_id)
        log = partition.log
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if wanted.last_fetched_epoch >= 0:
            diverging = partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
            if diverging is not None:
                # It does not count as a sign of life: nobody knows yet what of its log is the same.
                data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
                self.urgent = True
                return data
        self.partitions.append(partition)
        room = 0 if self._held_back(partition, now_ms) else max(min(wanted.max_bytes, left), 0)
        found = partition.read_as_replica(wanted.fetch_offset, room, min_one=self.bytes_read == 0 and room > 0)
        if arrived:
            follower.start_offset = wanted.log_start_offset
            partition.fetched(self._replica_id, wanted.fetch_offset, now_ms, self._replica_epoch)
            deletions = self._ctx.services.replicas.deletions
            if deletions.waits:
                deletions.look_at(partition)
            data.high_watermark, data.last_stable_offset = partition.high_watermark, partition.last_stable_offset
            wanted.note = _Known(partition, follower, partition.partition_epoch)
        if found is not None:
            data.records = found.slice
            if self._throttled(partition):
                self._ctx.services.replicas.leader_allowance.spend(found.slice.size, now_ms)
        return data

    def _throttled(self, partition: Partition) -> bool:
        listed = partition.log.config.leader_replication_throttled_replicas
        return (
            bool(listed)
            and not partition.follower(self._replica_id).in_sync
            and is_throttled(listed, partition.topic_partition.partition, self._ctx.services.broker_id)
        )

    def _held_back(self, partition: Partition, now_ms: int) -> bool:
        if not self._throttled(partition):
            return False
        allowance = self._ctx.services.replicas.leader_allowance
        allowance.set_rate(self._ctx.services.config.leader_replication_throttled_rate)
        return allowance.wait_ms(now_ms) > 0


def handle(ctx: Context, req: FetchRequest, replica_id: int, replica_epoch: int) -> Answer[FetchResponse]:
    services = ctx.services
    if ctx.peer_broker != replica_id:
        return refused(
            BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"only broker {replica_id} may fetch as replica of it")
        )
    try:
        scope = services.fetch_sessions.scope(req, ctx.version, services.clock.now_ms())
    except BrokerError as error:
        return refused(error)
    fetch = ReplicaFetch(ctx, req, scope, replica_id, replica_epoch)
    results = fetch.read(arrived=True)
    fetches = services.replicas.fetches_of(replica_id)
    patience_ms = fetches.patience_ms(services.replicas.now_ms(), req.max_wait_ms)
    # Consumers may read from it: they wait there for the high watermark.
    is_read = bool(services.config.replica_selector_class)
    if (
        fetch.urgent
        or fetch.bytes_read >= req.min_bytes
        or patience_ms <= 0
        or not scope.wanted
        or (is_read and _hears_news(results))
    ):
        return shape(ctx, scope, results)

    def woken() -> None:
        # Not at once: what else is appended in this turn of the loop goes along.
        timer.cancel()
        services.loop.call_soon(answer)

    def answer() -> None:
        wait.give_up()
        waiting.complete(shape(ctx, scope, fetch.read(arrived=False)))

    def forget() -> None:
        timer.cancel()
        wait.give_up()

    wait = FetchWait(req.min_bytes - fetch.bytes_read, woken)
    fetches.watch(wait)
    for partition in fetch.partitions:
        partition.watch_end(wait)
        if is_read:
            partition.watch(wait)
    timer = services.loop.call_later(patience_ms / 1000, answer)
    waiting: Waiting[FetchResponse] = Waiting(forget)
    return waiting


def _hears_news(results: list[tuple[Wanted, PartitionData]]) -> bool:
    """Whether a high watermark has moved since the follower was last told."""
    return any(data.high_watermark > wanted.told_high_watermark for wanted, data in results)
