"""Fetch (1), v4-18. Reads record batches, waiting for enough of them. Records go from the page cache to the socket.

v7 sessions · v9 leader epochs · v10 zstd · v12 flexible, diverging epochs · v13 topic ids · v15 replica state
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler, Waiting
from tidelog.records.compression import Codec
from tidelog.records.header import HEADER_SIZE, peek
from tidelog.replication.fetch_sessions import TOPIC_IDS_SINCE
from tidelog.replication.waiting import FetchWait
from tidelog.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from tidelog.replication.fetch_sessions import FetchScope, Wanted
    from tidelog.replication.partition import Partition

READ_COMMITTED = 1
CONSUMER = -1
ZSTD_SINCE = 10


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
    if req.replica_id != CONSUMER or req.replica_state.replica_id != CONSUMER:
        return _refused(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has no followers"))
    try:
        scope = services.fetch_sessions.scope(req, ctx.version, services.clock.now_ms())
    except BrokerError as error:
        return _refused(error)
    reading = _read(ctx, req, scope)
    wanted = min(req.min_bytes, _response_bytes_max(ctx, req))
    if reading.urgent or reading.bytes_read >= wanted or req.max_wait_ms <= 0 or not scope.wanted:
        return _reply(scope, reading)
    return _park(ctx, req, scope, reading, wanted)


def _response_bytes_max(ctx: Context, req: FetchRequest) -> int:
    return min(req.max_bytes, ctx.services.config.fetch_max_bytes)


def _read(ctx: Context, req: FetchRequest, scope: FetchScope) -> _Reading:
    reading = _Reading()
    committed_only = req.isolation_level == READ_COMMITTED
    left = _response_bytes_max(ctx, req)
    for wanted in scope.wanted:
        try:
            data = _read_partition(ctx, wanted, reading, left, committed_only=committed_only)
            left -= _size(data)
            reading.bytes_read += _size(data)
        except BrokerError as error:
            reading.urgent = True
            data = _empty(wanted.partition, error.code)
        reading.results.append((wanted, data))
    return reading


def _read_partition(
    ctx: Context, wanted: Wanted, reading: _Reading, left: int, *, committed_only: bool
) -> PartitionData:
    services = ctx.services
    topic = wanted.topic
    if ctx.version >= TOPIC_IDS_SINCE:
        topic = services.image.topic_by_id(wanted.topic_id).name
    partition = services.replicas.get(topic, wanted.partition)
    partition.check_leader(wanted.current_leader_epoch)
    log = partition.log
    data = PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if committed_only else None,
        records=b"",
    )
    if wanted.last_fetched_epoch >= 0 and _diverged(partition, wanted, data):
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
    return data


def _diverged(partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
    """Whether the reader's log has taken another course than ours: it must cut back before it reads on (KIP-595)."""
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return False
    if end_offset < 0 or epoch < 0:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no leader epoch up to {wanted.last_fetched_epoch} is known")
    data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return True


def _park(ctx: Context, req: FetchRequest, scope: FetchScope, reading: _Reading, wanted: int) -> Waiting[FetchResponse]:
    """Answers when enough has come, or when the client's patience ends, with what there is then."""

    def answer() -> None:
        timer.cancel()
        wait.give_up()
        waiting.complete(_reply(scope, _read(ctx, req, scope)))

    def forget() -> None:
        timer.cancel()
        wait.give_up()

    wait = FetchWait(wanted - reading.bytes_read, answer)
    for partition in reading.partitions:
        partition.watch(wait)
    timer = ctx.services.loop.call_later(req.max_wait_ms / 1000, answer)
    waiting: Waiting[FetchResponse] = Waiting(forget)
    return waiting


def _reply(scope: FetchScope, reading: _Reading) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    for wanted, data in scope.select(reading.results):
        last = topics[-1] if topics else None
        if last is None or last.topic != wanted.topic or last.topic_id != wanted.topic_id:
            last = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(data)
    return FetchResponse(throttle_time_ms=0, session_id=scope.session_id, responses=topics)


def _refused(error: BrokerError) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])


def _empty(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _size(data: PartitionData) -> int:
    records = data.records
    if isinstance(records, bytes) or records is None:
        return 0
    assert not isinstance(records, bytearray | memoryview)
    return records.size


HANDLER = Handler(FetchRequest, FetchResponse, versions=(4, 18), handle=handle)
