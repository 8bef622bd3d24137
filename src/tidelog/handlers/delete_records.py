"""DeleteRecords (21), v0-2. Moves the start of partitions up, so that older records are gone. v2 flexible.

They are gone when every live replica has deleted them: whoever leads next must not show them again. The answer waits
for that, as long as the client allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler, Waiting
from tidelog.replication.deletions import low_watermark
from tidelog.replication.waiting import ProduceWait, nobody
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition


HIGH_WATERMARK = -1


class _Deletion(NamedTuple):
    partition: Partition
    result: DeleteRecordsPartitionResult


def handle(ctx: Context, req: DeleteRecordsRequest) -> Answer[DeleteRecordsResponse]:
    wait = ProduceWait(nobody)
    deletions: list[_Deletion] = []
    reply = DeleteRecordsResponse(throttle_time_ms=0, topics=[])
    for topic in req.topics:
        results = []
        for part in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=part.partition_index, low_watermark=-1, error_code=0)
            results.append(result)
            try:
                deletion = _Deletion(ctx.services.replicas.get(topic.name, part.partition_index), result)
                _delete(ctx, deletion, part.offset, wait)
            except BrokerError as error:
                result.error_code = error.code
            else:
                deletions.append(deletion)
        reply.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return _park(ctx, req, reply, deletions, wait) if wait.outstanding else reply


def _delete(ctx: Context, deletion: _Deletion, offset: int, wait: ProduceWait) -> None:
    partition, image = deletion.partition, ctx.services.image
    upto = partition.high_watermark if offset == HIGH_WATERMARK else offset
    partition.delete_records(offset)
    if ctx.services.replicas.deletions.park(partition, upto, wait, lambda: image.brokers):
        partition.wake_readers()  # followers hear of it at once
    deletion.result.low_watermark = low_watermark(partition, image.brokers)


def _park(
    ctx: Context, req: DeleteRecordsRequest, reply: DeleteRecordsResponse, deletions: list[_Deletion], wait: ProduceWait
) -> Waiting[DeleteRecordsResponse]:
    def forget() -> None:
        timer.cancel()
        wait.on_done = nobody
        ctx.services.replicas.deletions.forget(wait)

    def finish() -> None:
        late = set(wait.outstanding)
        forget()
        for partition, result in deletions:
            failure = wait.failures.get(partition.topic_partition)
            if failure is not None:
                result.error_code, result.low_watermark = failure.code, -1
            elif partition.leads:
                result.low_watermark = low_watermark(partition, ctx.services.image.brokers)
                if partition.topic_partition in late:
                    result.error_code = ErrorCode.REQUEST_TIMED_OUT
        waiting.complete(reply)

    timer = ctx.services.loop.call_later(max(req.timeout_ms, 0) / 1000, finish)
    wait.on_done = finish
    waiting: Waiting[DeleteRecordsResponse] = Waiting(forget)
    return waiting


HANDLER = Handler(DeleteRecordsRequest, DeleteRecordsResponse, versions=(0, 2), handle=handle)
