"""The producer's shell: takes ready batches to the leaders of their partitions and settles what became of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.accumulator import Batch, ProducerIdentity
from tidelog.client.backoff import Deadline
from tidelog.client.delivery import Verdict, judge, leaves_doubt, metadata_is_stale, sequence_is_unknown
from tidelog.client.errors import (
    BadReply,
    ClientError,
    ConnectionLost,
    NotSupported,
    TimedOut,
    check,
    error_code,
    refusal,
    worth_retrying,
)
from tidelog.client.transactions.book import JOINS_BY_WRITING
from tidelog.client.transactions.reactions import Reaction, react
from tidelog.errors import BrokerError
from tidelog.types import ZERO_TOPIC_ID, BrokerId, Offset, ProducerId, TopicPartition
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from tidelog.client.accumulator import Accumulator
    from tidelog.client.background import Background
    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ProducerConfig
    from tidelog.client.transactions.coordination import Coordination

log = logging.getLogger(__name__)

_NAMED_PRODUCE_MAX = 12  # later versions name topics by their id
_ADDED_BEFORE_MAX = 11  # later versions add partitions to transactions
_NO_OFFSET = Offset(-1)
_NO_TRANSACTION_MS = 60_000  # without a transactional id nobody looks at it, but it must be a sane number


class RecordMetadata(NamedTuple):
    """Where a record was stored."""

    topic: str
    partition: int
    offset: Offset
    """-1 when the broker did not say: with acks=0, or for a repetition that it no longer remembers."""
    timestamp: int


Delivery = asyncio.Future[RecordMetadata] | concurrent.futures.Future[RecordMetadata]
"""The latter for those who do not await."""


class Receipt(NamedTuple):
    """What is kept for each record until it is settled."""

    future: asyncio.Future[RecordMetadata]
    """Or anything that can be done and settled as one can."""
    timestamp: int


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator[Receipt],
        config: ProducerConfig,
        background: Background,
        coordination: Coordination | None = None,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._config = config
        self._background = background
        self._coordination = coordination
        self._adding: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._space = asyncio.Event()
        self._requests: dict[BrokerId, int] = {}
        self._identity: ProducerIdentity | None = None
        self._identity_failures = 0
        self._ask_again_s = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._stale: set[str] = set()
        self._failure: BaseException | None = None

    def wake(self) -> None:
        self._wake.set()

    async def wait_for_space(self) -> None:
        self._space.clear()
        await self._space.wait()
        self.check_running()

    def check_running(self) -> None:
        if self._failure is not None:
            raise ClientError(f"the producer stopped: {self._failure}") from self._failure

    async def run(self) -> None:
        """Runs until it is cancelled. Whatever else ends it fails every record, those of later sends included."""
        try:
            while True:
                self._wake.clear()
                # One time for both: what becomes ready in between would be neither sent nor waited for.
                now_s = asyncio.get_running_loop().time()
                await self._step(now_s)
                await self._sleep(now_s)
        except (ClientError, BrokerError) as error:
            log.error("the producer cannot go on: %s", error)
            self._failure = error
            self.abandon(error)
        except Exception as error:
            log.exception("the producer cannot go on")
            self._failure = error
            self.abandon(error)

    def abandon(self, error: BaseException) -> None:
        """Fails everything that is not settled."""
        for batch in self._accumulator.drain():
            _fail(batch, error)
        self._space.set()

    async def _step(self, now_s: float) -> None:
        for batch in self._accumulator.expire(now_s - self._config.delivery_timeout_ms / 1000):
            error = self._too_late(batch, "its leader could not be reached")
            _fail(batch, error)
            self._transaction_loses(error)
            self._space.set()
        ready = self._accumulator.ready(now_s)
        if not ready:
            return
        if self._coordination is not None:
            ready = self._in_transaction(self._coordination, ready)
        elif self._config.idempotent and not await self._have_identity(now_s):
            return
        for broker, partitions in self._by_leader(ready).items():
            self._dispatch(broker, partitions)

    def _in_transaction(self, coordination: Coordination, ready: list[TopicPartition]) -> list[TopicPartition]:
        """Those of `ready` that the transaction's coordinator knows of; for the others it is asked."""
        book = coordination.book
        if not book.taking_records:
            return []
        missing = book.to_add(ready)
        if missing and (self._adding is None or self._adding.done()):
            self._adding = self._background.start(self._add(coordination, missing), "tidelog producer adds partitions")
        self._identity = book.identity
        return [partition for partition in ready if partition not in missing]

    async def _add(self, coordination: Coordination, partitions: set[TopicPartition]) -> None:
        try:
            await coordination.add_partitions(partitions, Deadline(self._config.max_block_ms))
        except ClientError as error:
            self._transaction_loses(error)
        self._wake.set()

    def _transaction_loses(self, error: BaseException) -> None:
        """A record of the transaction is lost, so that it cannot be committed, and the rest need not be sent."""
        if self._coordination is None:
            return
        book = self._coordination.book
        reaction = Reaction.ABORT
        if isinstance(error, BrokerError):
            reaction = react(ProduceRequest, error.code)
        elif isinstance(error, NotSupported):
            reaction = Reaction.FATAL
        if isinstance(error, ClientError | BrokerError) and error is not book.failure:
            book.fail(reaction, error)
        if book.failure is not None:
            self.give_up_waiting(book.failure)

    def _lose_all(self, error: ClientError | BrokerError) -> None:
        """No broker can be asked where to send anything."""
        self._transaction_loses(error)
        self.give_up_waiting(error)

    def give_up_waiting(self, error: BaseException) -> None:
        """Fails what is not in flight."""
        for batch in self._accumulator.give_up_waiting():
            _fail(batch, error)
        self._space.set()

    async def _sleep(self, now_s: float) -> None:
        """Until something happens, or a batch has lingered long enough, or one is too old."""
        times = [self._accumulator.next_ready_s(now_s), self._ask_again_s if self._ask_again_s > now_s else None]
        oldest_s = self._accumulator.oldest_s()
        if oldest_s is not None:
            times.append(oldest_s + self._config.delivery_timeout_ms / 1000)
        next_s = min((time_s for time_s in times if time_s is not None), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(next_s):
                await self._wake.wait()

    def _by_leader(self, partitions: list[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        grouped: dict[BrokerId, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._cluster.metadata.leader_of(partition)
            if leader is None:
                self._refresh(partition.topic)
            else:
                grouped.setdefault(leader.id, []).append(partition)
        return grouped

    def _dispatch(self, broker: BrokerId, partitions: list[TopicPartition]) -> None:
        """Starts as many requests as may be in flight; what is left over waits for one of them to end."""
        waiting = list(reversed(partitions))
        transaction = None if self._coordination is None else self._coordination.book
        if transaction is not None:
            transaction.written = True
        while waiting and self._requests.get(broker, 0) < self._config.max_in_flight_requests_per_connection:
            batches: list[Batch[Receipt]] = []
            room = self._config.max_request_size
            while waiting and (not batches or self._accumulator.peek(waiting[-1]).size <= room):
                batch = self._accumulator.take(waiting.pop(), self._identity, transactional=transaction is not None)
                room -= batch.size
                batches.append(batch)
            self._requests[broker] = self._requests.get(broker, 0) + 1
            self._background.start(self._deliver(broker, batches), f"tidelog produce to broker {broker}")

    async def _deliver(self, broker: BrokerId, batches: list[Batch[Receipt]]) -> None:
        try:
            await self._send(broker, batches)
        except Exception as error:
            log.exception("a produce request failed for no good reason")
            for batch in batches:
                self._settle_failure(batch, error)
        finally:
            self._requests[broker] -= 1
            self._space.set()
            self._wake.set()

    async def _send(self, broker: BrokerId, batches: list[Batch[Receipt]]) -> None:
        try:
            connection = await self._cluster.connection(broker)
        except (ClientError, BrokerError) as error:
            self._unanswered(batches, error)
            return
        request = self._request(batches)
        limit = self._version_limit(request)
        try:
            if self._config.required_acks == 0:
                await connection.send_unanswered(request, limit=limit)
                for batch in batches:
                    self._settle_success(batch, _NO_OFFSET, -1)
                return
            reply = await connection.send(request, ProduceResponse, limit=limit)
        except (ConnectionLost, BadReply) as error:
            for batch in batches:
                batch.maybe_stored = True
            self._unanswered(batches, error)
        except ClientError as error:
            self._unanswered(batches, error)
        else:
            self._answered(batches, reply)

    def _version_limit(self, request: ProduceRequest) -> int | None:
        if self._coordination is not None and self._coordination.book.version < JOINS_BY_WRITING:
            return _ADDED_BEFORE_MAX
        return _NAMED_PRODUCE_MAX if any(t.topic_id == ZERO_TOPIC_ID for t in request.topic_data) else None

    def _request(self, batches: list[Batch[Receipt]]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topics.setdefault(batch.partition.topic, []).append(
                PartitionProduceData(index=batch.partition.partition, records=batch.seal(self._config.codec))
            )
        return ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=name, topic_id=self._cluster.metadata.topic_id(name), partition_data=data)
                for name, data in topics.items()
            ],
        )

    def _unanswered(self, batches: list[Batch[Receipt]], error: ClientError | BrokerError) -> None:
        """Nobody has answered. Where that will stay so, such as with a wrong password, waiting helps nobody."""
        for batch in batches:
            if _may_pass(error):
                self._refresh(batch.partition.topic)
                self._retry(batch, error)
            else:
                self._settle_failure(batch, error)

    def _answered(self, batches: list[Batch[Receipt]], reply: ProduceResponse) -> None:
        names = {self._cluster.metadata.topic_id(name): name for name in {b.partition.topic for b in batches}}
        answers = {
            TopicPartition(topic.name or names.get(topic.topic_id, ""), answer.index): answer  # type: ignore[call-overload]
            for topic in reply.responses
            for answer in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                batch.maybe_stored = True
                self._retry(batch, BadReply(f"{batch.partition}: the broker's answer leaves it out"))
            else:
                self._judge(batch, answer)

    def _judge(self, batch: Batch[Receipt], answer: PartitionProduceResponse) -> None:
        code = error_code(answer.error_code)
        verdict = judge(
            code,
            record_count=batch.record_count,
            maybe_stored=batch.maybe_stored,
            transactional=self._coordination is not None,
        )
        if verdict is Verdict.DELIVERED:
            self._settle_success(batch, Offset(answer.base_offset), answer.log_append_time_ms)
            return
        error = refusal(answer.error_code, answer.error_message, str(batch.partition))
        batch.maybe_stored = batch.maybe_stored or leaves_doubt(code)
        if metadata_is_stale(code):
            self._refresh(batch.partition.topic)
        if self._coordination is not None and sequence_is_unknown(code):
            self._coordination.book.needs_new_epoch = True
        if verdict is Verdict.SPLIT:
            self._accumulator.split(batch)
        elif verdict in {Verdict.RETRY, Verdict.RENEW}:
            self._retry(batch, error, renew=verdict is Verdict.RENEW)
        else:
            reasons = {blamed.batch_index: blamed.batch_index_error_message for blamed in answer.record_errors}
            self._settle_failure(batch, error, reasons)

    def _retry(self, batch: Batch[Receipt], error: Exception, *, renew: bool = False) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - batch.created_s >= self._config.delivery_timeout_ms / 1000:
            self._settle_failure(batch, self._too_late(batch, str(error)))
            return
        if self._coordination is not None and not self._coordination.book.taking_records:
            self._settle_failure(batch, error)
            return
        log.debug("%s: attempt %d failed, trying again: %s", batch.partition, batch.attempts, error)
        wait_s = self._cluster.backoff.delay_s(batch.attempts - 1)
        self._accumulator.retry(batch, now_s + wait_s, renew=renew)

    def _too_late(self, batch: Batch[Receipt], reason: str) -> TimedOut:
        return TimedOut(
            f"{batch.partition}: not delivered within delivery_timeout_ms = {self._config.delivery_timeout_ms} "
            f"and {batch.attempts} attempts; last: {reason}"
        )

    def _settle_success(self, batch: Batch[Receipt], base_offset: Offset, append_time_ms: int) -> None:
        self._accumulator.succeeded(batch)
        topic, partition = batch.partition
        offset = base_offset
        for future, timestamp in batch.tokens:
            if not future.done():
                stamp = timestamp if append_time_ms < 0 else append_time_ms
                future.set_result(RecordMetadata(topic, partition, offset, stamp))
            if base_offset >= 0:
                offset = Offset(offset + 1)

    def _settle_failure(
        self, batch: Batch[Receipt], error: BaseException, reasons: dict[int, str | None] | None = None
    ) -> None:
        self._accumulator.failed(batch)
        _fail(batch, error, reasons)
        self._transaction_loses(error)

    async def _have_identity(self, now_s: float) -> bool:
        """Asks for a producer id when there is none, or the last one is spent; false: not now, try again later."""
        if self._identity is not None and not self._accumulator.identity_spent:
            return True
        if now_s < self._ask_again_s:
            return False
        self._accumulator.identity_spent = False
        self._identity = None
        try:
            self._identity = await self._new_identity()
        except (ClientError, BrokerError) as error:
            if not worth_retrying(error):
                raise
            log.debug("asking for a producer id failed, trying again: %s", error)
            now_s = asyncio.get_running_loop().time()
            self._ask_again_s = now_s + self._cluster.backoff.delay_s(self._identity_failures)
            self._identity_failures += 1
            return False
        self._identity_failures = 0
        return True

    async def _new_identity(self) -> ProducerIdentity:
        connection = await self._cluster.any_connection()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_MS)
        try:
            reply = await connection.send(request, InitProducerIdResponse)
        except NotSupported as error:
            raise NotSupported(f"{error}: set enable_idempotence=False to produce without producer ids") from error
        check(reply.error_code, about="asking for a producer id")
        return ProducerIdentity(ProducerId(reply.producer_id), reply.producer_epoch)

    def _refresh(self, topic: str) -> None:
        """Asks for the topic's leaders anew, once at a time."""
        self._stale.add(topic)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._background.start(self._refresh_stale(), "tidelog producer metadata")

    async def _refresh_stale(self) -> None:
        tries = 0
        while self._stale:
            topics, self._stale = self._stale, set()
            try:
                await self._cluster.refresh(topics)
            except (ClientError, BrokerError) as error:
                log.debug("refreshing metadata failed: %s", error)
                if not _may_pass(error):
                    self._lose_all(error)
                    return
                self._stale |= topics
            # Also after a success: whatever made it stale may not be over, and must not become a busy loop.
            await asyncio.sleep(self._cluster.backoff.delay_s(tries))
            tries += 1
            self._wake.set()


def _may_pass(error: ClientError | BrokerError) -> bool:
    return worth_retrying(error) or isinstance(error, BadReply)


def _fail(batch: Batch[Receipt], error: BaseException, reasons: dict[int, str | None] | None = None) -> None:
    """Gives each record its exception. One line tells of the batch, since nobody may ever look at the futures."""
    log.warning("%s: %d records were not delivered: %s", batch.partition, batch.record_count, error)
    for index, (future, _timestamp) in enumerate(batch.tokens):
        if future.done():
            continue
        reason = reasons.get(index) if reasons else None
        future.set_exception(BrokerError(error.code, reason) if reason and isinstance(error, BrokerError) else error)
        future.exception()  # looked at: asyncio need not report it once more
