"""WriteTxnMarkers (27), v1-2. Ends transactions in the partitions named, as their coordinator has decided.

v2 transaction version: from 2 on, a marker carries the epoch after that of the transaction it ends

Answered once every marker is safe. Administrators use it too, to abort a transaction that nobody will end (KIP-664).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.controller.image import OFFSETS_TOPIC
from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler, Waiting
from tidelog.records.control import Marker, MarkerType
from tidelog.replication.waiting import ProduceWait, nobody
from tidelog.types import TopicPartition
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog.wire.messages.write_txn_markers import WritableTxnMarker

logger = logging.getLogger(__name__)


class _Writing:
    """The markers of one request on their way into the logs."""

    __slots__ = ("_ctx", "_results", "_written", "reply", "wait")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.reply = WriteTxnMarkersResponse(markers=[])
        self.wait = ProduceWait(nobody)
        self._results: dict[TopicPartition, list[WritableTxnMarkerPartitionResult]] = {}
        """Of markers that are written, all that share a partition."""
        self._written: dict[TopicPartition, tuple[Partition, int]] = {}
        """The last one's offset in each partition."""

    def write(self, asked: WritableTxnMarker, now_ms: int) -> None:
        topics: list[WritableTxnMarkerTopicResult] = []
        self.reply.markers.append(WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics))
        for topic in asked.topics:
            results: list[WritableTxnMarkerPartitionResult] = []
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=0)
                results.append(result)
                try:
                    self._write_one(asked, topic.name, index, now_ms)
                except BrokerError as error:
                    logger.debug("marker of producer %d refused: %s", asked.producer_id, error)
                    result.error_code = error.code
                else:
                    self._results.setdefault(TopicPartition(topic.name, index), []).append(result)

    def _write_one(self, asked: WritableTxnMarker, topic: str, index: int, now_ms: int) -> None:
        partition = self._ctx.services.replicas.get(topic, index)
        marker = Marker(MarkerType.COMMIT if asked.transaction_result else MarkerType.ABORT, asked.coordinator_epoch)
        appended = partition.append_marker(
            marker,
            asked.producer_id,
            asked.producer_epoch,
            now_ms,
            transaction_version=asked.transaction_version,
        )
        self._written[partition.topic_partition] = (partition, appended.last_offset)
        if topic == OFFSETS_TOPIC:
            groups = self._ctx.services.groups
            groups.transaction_ended(index, asked.producer_id, asked.producer_epoch, asked.transaction_result)

    def park(self) -> bool:
        """Whether there is something to wait for."""
        for partition, last_offset in self._written.values():
            try:
                partition.await_safe(last_offset, self.wait)
            except BrokerError as error:
                self._fail(partition.topic_partition, error.code)
        return bool(self.wait.outstanding)

    def finish(self) -> None:
        for topic_partition, error in self.wait.failures.items():
            self._fail(topic_partition, error.code)

    def expire(self) -> None:
        """The markers stay; the coordinator will ask again."""
        for topic_partition in self.wait.outstanding:
            self._fail(topic_partition, ErrorCode.REQUEST_TIMED_OUT)
        self.finish()

    def _fail(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        for result in self._results.get(topic_partition, ()):
            result.error_code = code


def handle(ctx: Context, req: WriteTxnMarkersRequest) -> Answer[WriteTxnMarkersResponse]:
    writing = _Writing(ctx)
    now_ms = ctx.services.clock.now_ms()
    for marker in req.markers:
        writing.write(marker, now_ms)
    if not writing.park():
        return writing.reply

    def forget() -> None:
        timer.cancel()
        writing.wait.on_done = nobody

    def expire() -> None:
        forget()
        writing.expire()
        waiting.complete(writing.reply)

    def finish() -> None:
        timer.cancel()
        writing.finish()
        waiting.complete(writing.reply)

    timer = ctx.services.loop.call_later(ctx.services.config.request_timeout_ms / 1000, expire)
    writing.wait.on_done = finish
    waiting: Waiting[WriteTxnMarkersResponse] = Waiting(forget)
    return waiting


HANDLER = Handler(WriteTxnMarkersRequest, WriteTxnMarkersResponse, versions=(1, 2), handle=handle)
