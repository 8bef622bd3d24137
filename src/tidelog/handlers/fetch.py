"""Fetch (1), v4-18. Reads record batches, waiting for enough of them. Records go from the page cache to the socket.

v7 sessions · v9 leader epochs · v10 zstd · v11 racks: consumers may read from followers · v12 flexible, diverging
epochs · v13 topic ids · v15 replica state · v16 addresses of new leaders
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers import replica_fetch
from tidelog.handlers.fetch_reply import empty, name_leader, refused, shape, size_of, topic_name
from tidelog.handlers.handler import Answer, Context, Handler, Waiting
from tidelog.records.compression import Codec
from tidelog.records.header import HEADER_SIZE, peek
from tidelog.replication.fetch_sessions import TOPIC_IDS_SINCE
from tidelog.replication.nearest import nearest
from tidelog.replication.waiting import FetchWait
from tidelog.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from tidelog.replication.fetch_sessions import FetchScope, Wanted
    from tidelog.replication.partition import Partition

READ_COMMITTED = 1
CONSUMER = -1
ZSTD_SINCE = 10
RACKS_SINCE = 11
RACK_AWARE_SELECTOR = "RackAwareReplicaSelector"
"""The last part of the name by which Kafka's configuration asks for it."""


class _Reading:
    """One pass over the partitions of a request."""

    __slots__ = ("bytes_read", "partitions", "results", "urgent")

    def __init__(self) -> None:
        self.results: list[tuple[Wanted, PartitionData]] = []
        self.partitions: list[Partition] = []
        self.bytes_read = 0
        self.urgent = False
        """Something cannot wait: an error, or a log that has diverged."""


def handle(ctx: Context, req: FetchRequest) -> Answer[FetchResponse]:
    services = ctx.services
    if req.replica_state.replica_id != CONSUMER:
        return replica_fetch.handle(ctx, req, req.replica_state.replica_id, req.replica_state.replica_epoch)
    if req.replica_id != CONSUMER:
        return replica_fetch.handle(ctx, req, req.replica_id, -1)
    try:
        scope = services.fetch_sessions.scope(req, ctx.version, services.clock.now_ms())
    except BrokerError as error:
        return refused(error)
    reading = _read(ctx, req, scope)
    wanted = min(req.min_bytes, _response_bytes_max(ctx, req))
    if reading.urgent or reading.bytes_read >= wanted or req.max_wait_ms <= 0 or not scope.wanted:
        return shape(ctx, scope, reading.results)
    return _park(ctx, req, scope, reading, wanted)


def _response_bytes_max(ctx: Context, req: FetchRequest) -> int:
    return min(req.max_bytes, ctx.services.config.fetch_max_bytes)


def _read(ctx: Context, req: FetchRequest, scope: FetchScope) -> _Reading:
    reading = _Reading()
    left = _response_bytes_max(ctx, req)
    for wanted in scope.wanted:
        partition: Partition | None = None
        try:
            topic = topic_name(ctx, wanted.topic_id) if ctx.version >= TOPIC_IDS_SINCE else wanted.topic
            partition = ctx.services.replicas.get(topic, wanted.partition)
            data = _read_partition(ctx, req, wanted, partition, reading, left)
            size = size_of(data)
            left -= size
            reading.bytes_read += size
        except BrokerError as error:
            reading.urgent = True
            data = empty(wanted.partition, error)
            name_leader(ctx, data, partition)
        reading.results.append((wanted, data))
    return reading


def _read_partition(
    ctx: Context, req: FetchRequest, wanted: Wanted, partition: Partition, reading: _Reading, left: int
) -> PartitionData:
    led_here = partition.leader == ctx.services.broker_id
    if led_here or ctx.version < RACKS_SINCE:
        partition.check_leader(wanted.current_leader_epoch)
    else:
        _check_follower(partition, wanted)
    committed_only = req.isolation_level == READ_COMMITTED
    data = PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        aborted_transactions=[] if committed_only else None,
        records=b"",
    )
    if wanted.last_fetched_epoch >= 0 and _diverged(partition, wanted, data):
        reading.urgent = True
        return data
    if req.rack_id and led_here and _nearer_replica(ctx, req.rack_id, partition, wanted, data):
        reading.urgent = True
        return data
    reading.partitions.append(partition)
    found = partition.read(
        wanted.fetch_offset,
        max(min(wanted.max_bytes, left), 0),
        min_one=reading.bytes_read == 0,
        committed_only=committed_only,
    )
    if found is not None:
        if ctx.version < ZSTD_SINCE and peek(found.slice.read(0, HEADER_SIZE)).codec == Codec.ZSTD:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10 or later")
        data.records = found.slice
        if committed_only:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in partition.log.aborted_transactions(wanted.fetch_offset, found.next_offset)
            ]
    return data


def _check_follower(partition: Partition, wanted: Wanted) -> None:
    """A follower serves what it knows to be safe. What it has beyond that is for later, not out of range."""
    partition.check_replica(wanted.current_leader_epoch)
    if partition.high_watermark < wanted.fetch_offset <= partition.log.log_end_offset:
        raise BrokerError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.topic_partition} is known to be safe up to {partition.high_watermark} here: try again",
        )


def _diverged(partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
    """Whether the reader's log has taken another course than ours: it must cut back before it reads on (KIP-595)."""
    diverging = partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
    if diverging is None:
        return False
    data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
    return True


def _nearer_replica(ctx: Context, rack: str, partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
    """Whether a consumer should rather read in its own rack; then it is told where."""
    services = ctx.services
    if not services.config.replica_selector_class.endswith(RACK_AWARE_SELECTOR):
        return False
    racks = {broker_id: rack for broker_id, _endpoint, rack in services.image.endpoints(ctx.listener)}
    replica = nearest(rack, services.broker_id, racks, partition.readable_followers(), wanted.fetch_offset)
    if replica == services.broker_id:
        return False
    data.preferred_read_replica = replica
    return True


def _park(ctx: Context, req: FetchRequest, scope: FetchScope, reading: _Reading, wanted: int) -> Waiting[FetchResponse]:
    """Answers when enough has come, or when the client's patience ends, with what there is then."""

    def answer() -> None:
        timer.cancel()
        wait.give_up()
        waiting.complete(shape(ctx, scope, _read(ctx, req, scope).results))

    def forget() -> None:
        timer.cancel()
        wait.give_up()

    wait = FetchWait(wanted - reading.bytes_read, answer)
    committed_only = req.isolation_level == READ_COMMITTED
    for partition in reading.partitions:
        partition.watch(wait, committed_only=committed_only)
    timer = ctx.services.loop.call_later(req.max_wait_ms / 1000, answer)
    waiting: Waiting[FetchResponse] = Waiting(forget)
    return waiting


HANDLER = Handler(FetchRequest, FetchResponse, versions=(4, 18), handle=handle)
