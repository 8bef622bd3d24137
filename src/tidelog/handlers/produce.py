"""Produce (0), v3-13. Appends one record batch to each of the partitions named.

v7 zstd · v8 record errors · v9 flexible · v10 current leader · v11 TRANSACTION_ABORTABLE · v12 partitions join the
transaction by being written to, there is no AddPartitionsToTxn before it (KIP-890) · v13 topic ids

Advertised from v0, as Kafka does: older librdkafka decides by the lower bound whether a broker can take compression.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import CLOSE, NO_REPLY, Answer, Context, Handler, Silence, Waiting
from tidelog.records.compression import InflatedTooLarge
from tidelog.records.header import TRANSACTIONAL_BIT, peek
from tidelog.records.validate import InvalidRecord, check_produced, deep_check, needs_deep_check
from tidelog.replication.waiting import ProduceWait, nobody
from tidelog.storage.verification import TRUSTED
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.records.header import BatchHeader
    from tidelog.replication.partition import Partition
    from tidelog.storage.log import Appended
    from tidelog.storage.verification import Guard

logger = logging.getLogger(__name__)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
_LEGAL_ACKS = frozenset((ACKS_NONE, ACKS_LEADER, ACKS_ALL))
_TOPIC_IDS_SINCE = 13
_ZSTD_SINCE = 7
_ABORTABLE_IS_UNDERSTOOD_SINCE = 11
_JOINS_BY_ITSELF_SINCE = 12

_TOLD_INSTEAD = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What producers understand as an answer to Produce. NOT_ENOUGH_REPLICAS has them try again, and nothing else."""

_QUESTIONS_MAX = 5
"""To the coordinator about one request, when markers overtake the answers."""

_INLINE_BYTES_MAX = 32 << 10
_INLINE_INFLATED_BYTES_MAX = 512 << 10
"""Batches within these bounds are inflated on the spot: that takes less time than handing them to a thread."""


_NO_BATCH = memoryview(b"")


class _Part:
    """One partition's batch on its way through the handler."""

    __slots__ = ("batch", "guard", "header", "partition", "reply", "unchecked")

    def __init__(self, reply: PartitionProduceResponse) -> None:
        self.reply = reply
        self.partition: Partition | None = None
        self.batch = _NO_BATCH
        self.header: BatchHeader | None = None
        self.guard: Guard | None = None
        """Of a batch that begins a transaction."""
        self.unchecked = False
        """Its records must be looked at, in a thread."""

    def answer(self, appended: Appended) -> int:
        """Fills in the reply; gives the last offset, on whose safety the reply has to wait. Lets go of the frame."""
        self.batch = _NO_BATCH
        reply = self.reply
        reply.base_offset, last_offset, reply.log_append_time_ms, reply.log_start_offset, _ = appended
        return last_offset

    def replace(self, checked: memoryview) -> None:
        """Takes what a deep check says the log should store."""
        if checked is not self.batch:
            self.batch, self.header = checked, peek(checked)


def handle(ctx: Context, req: ProduceRequest) -> Answer[ProduceResponse]:
    reply = ProduceResponse(responses=[])
    parts: list[_Part] = []
    slow = False
    now_ms = ctx.services.clock.now_ms()
    for topic in req.topic_data:
        replies: list[PartitionProduceResponse] = []
        reply.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=replies)
        )
        for data in topic.partition_data:
            part = _Part(PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1))
            replies.append(part.reply)
            parts.append(part)
            try:
                name = topic.name
                if ctx.version >= _TOPIC_IDS_SINCE:
                    name = ctx.services.image.topic_by_id(topic.topic_id).name
                slow |= _check(ctx, req, part, name, data.records, now_ms)
            except BrokerError as error:
                _refuse(part, error)
    if slow:
        return _handle_slowly(ctx, req, reply, parts)
    return _append_all(ctx, req, reply, parts, now_ms)


def _check(ctx: Context, req: ProduceRequest, part: _Part, topic: str, records: object, now_ms: int) -> bool:
    """Finds the partition and checks the batch; True if its records must be looked at in a thread first, or if somebody
    must be asked about its transaction."""
    if req.acks not in _LEGAL_ACKS:
        raise BrokerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1 (all), not {req.acks}")
    partition = ctx.services.replicas.get(topic, part.reply.index)
    partition.check_leader()
    config = partition.log.config
    batch = records if isinstance(records, memoryview) else _NO_BATCH
    header = check_produced(batch, config, now_ms, zstd_allowed=ctx.version >= _ZSTD_SINCE)
    if header.attributes & TRANSACTIONAL_BIT:
        part.guard = _verification(ctx, req, partition, header, now_ms)
    part.partition, part.batch, part.header = partition, batch, header
    if needs_deep_check(header, config):
        part.unchecked = len(batch) > _INLINE_BYTES_MAX
        if not part.unchecked:
            try:
                part.replace(deep_check(batch, header, config, _INLINE_INFLATED_BYTES_MAX))
            except InflatedTooLarge:
                part.unchecked = True
    return part.unchecked or (part.guard is not None and part.guard is not TRUSTED)


def _verification(
    ctx: Context, req: ProduceRequest, partition: Partition, header: BatchHeader, now_ms: int
) -> Guard | None:
    """What a batch needs that begins a transaction in its partition; None if that has begun there."""
    if req.transactional_id is None:
        raise BrokerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction need a transactional id"
        )
    wanted = ctx.version >= _JOINS_BY_ITSELF_SINCE or ctx.services.config.transaction_partition_verification_enable
    _, _, _, _, _, _, _, _, _, producer_id, epoch, sequence, _ = header
    guard = partition.log.producers.verification(producer_id, epoch, sequence, now_ms)
    return guard if wanted or guard is None else TRUSTED


async def _handle_slowly(
    ctx: Context, req: ProduceRequest, reply: ProduceResponse, parts: list[_Part]
) -> ProduceResponse | Waiting[ProduceResponse] | Silence:
    """Takes records apart in a thread where a topic's settings or compression ask for it, and has the coordinator vouch
    for transactions that begin here; then appends as usual."""
    loop = ctx.services.loop
    for part in parts:
        if not part.unchecked or part.partition is None or part.header is None:
            continue
        config = part.partition.log.config
        try:
            part.replace(await loop.run_in_executor(ctx.services.blocking, deep_check, part.batch, part.header, config))
        except BrokerError as error:
            _refuse(part, error)
    # At the end, with nothing to wait for before the records are appended: what is vouched for can be overtaken.
    await _verify(ctx, req, [part for part in parts if part.partition and part.guard and part.guard is not TRUSTED])
    return _append_all(ctx, req, reply, parts, ctx.services.clock.now_ms())


async def _verify(ctx: Context, req: ProduceRequest, parts: list[_Part]) -> None:
    """All partitions in which the transaction begins, by one question; once more for those that a marker overtook.

    A producer that begins its next transaction at once often meets the marker of the last one.
    """
    producers = {(part.header.producer_id, part.header.producer_epoch) for part in parts if part.header}
    if len(producers) != 1 or req.transactional_id is None:
        for part in parts:
            _refuse(part, BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a transaction has one producer id"))
        return
    asked = parts
    for _ in range(_QUESTIONS_MAX):
        await _ask_coordinator(ctx, req, asked)
        asked = [part for part in parts if part.partition and _was_overtaken(ctx, req, part)]
        if not asked:
            return
    for part in asked:
        _refuse(part, BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "markers overtook all questions: try again"))


async def _ask_coordinator(ctx: Context, req: ProduceRequest, parts: list[_Part]) -> None:
    header = parts[0].header
    assert header is not None
    assert req.transactional_id is not None
    places = [part.partition.topic_partition for part in parts if part.partition]
    answers = await ctx.services.transactions.verify(
        req.transactional_id,
        header.producer_id,
        header.producer_epoch,
        places,
        add=ctx.version >= _JOINS_BY_ITSELF_SINCE,
    )
    for part, place in zip(parts, places, strict=True):
        if code := answers[place]:
            _refuse(part, BrokerError(_told(code, ctx.version), "the transaction's coordinator does not vouch for it"))


def _was_overtaken(ctx: Context, req: ProduceRequest, part: _Part) -> bool:
    """Whether the guard was voided while the question was on its way. There is another then, to be asked for."""
    asked_with = part.guard
    assert part.partition is not None
    assert part.header is not None
    part.guard = _verification(ctx, req, part.partition, part.header, ctx.services.clock.now_ms())
    return part.guard is not None and part.guard is not asked_with


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_IS_UNDERSTOOD_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return _TOLD_INSTEAD.get(code, code)


def _append_all(
    ctx: Context, req: ProduceRequest, reply: ProduceResponse, parts: list[_Part], now_ms: int
) -> ProduceResponse | Waiting[ProduceResponse] | Silence:
    acks = req.acks
    all_replicas = acks == ACKS_ALL
    wait: ProduceWait | None = None
    for part in parts:
        partition, header = part.partition, part.header
        if partition is None or header is None:
            continue
        try:
            appended = partition.append(part.batch, header, now_ms, all_replicas=all_replicas, guard=part.guard)
            last_offset = part.answer(appended)
            if acks != ACKS_NONE and last_offset >= partition.high_watermark:
                wait = wait or ProduceWait(nobody)
                partition.await_safe(last_offset, wait, all_replicas=all_replicas)
        except BrokerError as error:
            _refuse(part, error)
    if acks == ACKS_NONE:
        failed = [part.reply.error_code for part in parts if part.reply.error_code]
        return CLOSE if failed else NO_REPLY
    if wait is None or not wait.outstanding:
        return reply
    return _park(ctx, req, reply, parts, wait)


def _park(
    ctx: Context, req: ProduceRequest, reply: ProduceResponse, parts: list[_Part], wait: ProduceWait
) -> Waiting[ProduceResponse]:
    """Answers when every high watermark has passed, or when the client's patience ends: the data stays either way."""

    def forget() -> None:
        timer.cancel()
        wait.on_done = nobody

    def expire() -> None:
        for part in parts:
            if part.partition and part.partition.topic_partition in wait.outstanding:
                _refuse(part, BrokerError(ErrorCode.REQUEST_TIMED_OUT, "not yet safe: it may still become so"))
        forget()
        waiting.complete(reply)

    def finish() -> None:
        timer.cancel()
        for part in parts:
            failure = part.partition and wait.failures.get(part.partition.topic_partition)
            if failure:
                _refuse(part, failure)
        waiting.complete(reply)

    timer = ctx.services.loop.call_later(max(req.timeout_ms, 0) / 1000, expire)
    wait.on_done = finish
    waiting: Waiting[ProduceResponse] = Waiting(forget)
    return waiting


def _refuse(part: _Part, error: BrokerError) -> None:
    reply = part.reply
    reply.error_code = error.code
    reply.error_message = error.message
    reply.base_offset = reply.log_append_time_ms = reply.log_start_offset = -1
    if isinstance(error, InvalidRecord):
        reply.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.record_errors
        ]
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and part.partition:
        reply.current_leader = LeaderIdAndEpoch(
            leader_id=part.partition.leader, leader_epoch=part.partition.leader_epoch
        )
    part.partition = None
    logger.debug("produce to partition %d refused: %s", reply.index, error)


HANDLER = Handler(ProduceRequest, ProduceResponse, versions=(3, 13), handle=handle)
