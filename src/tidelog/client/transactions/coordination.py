"""Asks the coordinator what the book says is to be asked, until there is an answer or the time is up."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.accumulator import ProducerIdentity
from tidelog.client.errors import (
    BadReply,
    ClientError,
    InvalidState,
    NotSupported,
    TimedOut,
    TransactionFailed,
    error_code,
    refusal,
    worth_retrying,
)
from tidelog.client.transactions.book import JOINS_BY_WRITING, Book, Stage
from tidelog.client.transactions.handles import PreparedTransaction
from tidelog.client.transactions.line import CoordinatorOf, Line
from tidelog.client.transactions.reactions import Reaction, react
from tidelog.errors import BrokerError, ErrorCode
from tidelog.types import ProducerId, TopicPartition
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from tidelog.client.backoff import Deadline
    from tidelog.client.cluster import Cluster
    from tidelog.client.config import ProducerConfig
    from tidelog.client.groups.member import GroupMetadata
    from tidelog.client.offsets import OffsetAndMetadata
    from tidelog.wire.declare import Message

log = logging.getLogger(__name__)

M = TypeVar("M", bound="Message")

ADD_BEFORE_WRITING_MAX: Final[dict[type[Message], int]] = {
    AddPartitionsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
}
"""The last versions for whoever does not go by transaction.version 2."""

_SAYS_WHO_IT_WAS_SINCE: Final = 3
_TWO_PHASES_SINCE: Final = 6
_CONCURRENT_PAUSE_S: Final = 0.02
"""The last transaction's markers are being written: that takes no longer than a few round trips."""


class Coordination:
    def __init__(self, cluster: Cluster, config: ProducerConfig, book: Book, line: Line | None = None) -> None:
        self._cluster = cluster
        self._config = config
        self.book = book
        self._line = line or Line(cluster, CoordinatorOf.TRANSACTION, book.transactional_id)
        self._groups: dict[str, Line] = {}
        self._adding = asyncio.Lock()

    @property
    def transaction_version(self) -> int:
        return self._line.transaction_version

    async def close(self) -> None:
        for line in (self._line, *self._groups.values()):
            await line.close()

    async def initialise(self, deadline: Deadline, *, keep_prepared: bool = False) -> None:
        """Takes the transactional id over. What a predecessor left open is aborted, unless it is to be kept."""
        request = InitProducerIdRequest(
            transactional_id=self.book.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            enable2_pc=self._config.transaction_two_phase_commit_enable,
            keep_prepared_txn=keep_prepared,
        )
        needed = _TWO_PHASES_SINCE if request.enable2_pc or keep_prepared else 0
        reply = await self._init(request, needed, deadline)
        identity = ProducerIdentity(ProducerId(reply.producer_id), reply.producer_epoch)
        version = self.transaction_version
        if reply.ongoing_txn_producer_id < 0:
            self.book.initialised(identity, version)
            return
        prepared = PreparedTransaction(
            self.book.transactional_id, reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch, version
        )
        self.book.found_prepared(identity, prepared)

    async def _init(self, request: InitProducerIdRequest, needed: int, deadline: Deadline) -> InitProducerIdResponse:
        async def once() -> InitProducerIdResponse:
            connection = await self._line.connected()
            if connection.version_of(InitProducerIdRequest) < needed:
                raise NotSupported(
                    f"the broker does not offer InitProducerId version {needed}, which "
                    + ("two-phase commits need" if needed == _TWO_PHASES_SINCE else "going on after an error needs")
                )
            return await self._line.ask(request, InitProducerIdResponse)

        what = "asking for the producer's identity"
        if needed == _TWO_PHASES_SINCE:
            what += ", for which the broker must have transaction.two.phase.commit.enable"
        return await self._persist(what, InitProducerIdRequest, self._line, once, _one_code, deadline)

    async def add_partitions(self, partitions: Collection[TopicPartition], deadline: Deadline) -> None:
        async with self._adding:
            missing = self.book.to_add(partitions)
            if missing:
                await self._add_partitions(missing, deadline)

    async def _add_partitions(self, partitions: Collection[TopicPartition], deadline: Deadline) -> None:
        identity = self._identity()
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.book.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        # Also an attempt that gets no answer may have done it: from here on its end must be told.
        self.book.written = True
        what = f"adding {len(partitions)} partitions to the transaction"
        await self._ask(what, self._line, request, AddPartitionsToTxnResponse, _partition_codes, deadline)
        self.book.added(partitions)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline: Deadline
    ) -> None:
        identity = self._identity()
        transactional_id = self.book.transactional_id
        self.book.written = True
        if self.book.version < JOINS_BY_WRITING:
            add = AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group.group_id,
            )
            what = f"adding the positions of group {group.group_id} to the transaction"
            await self._ask(what, self._line, add, AddOffsetsToTxnResponse, _one_code, deadline)
        line = self._groups.get(group.group_id)
        if line is None:
            line = self._groups[group.group_id] = Line(self._cluster, CoordinatorOf.GROUP, group.group_id)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=_positions(offsets),
        )
        if (await self._version(line, TxnOffsetCommitRequest, deadline)) >= _SAYS_WHO_IT_WAS_SINCE:
            request.generation_id = group.generation_id
            request.member_id = group.member_id
            request.group_instance_id = group.group_instance_id
        what = f"storing the positions of group {group.group_id}"
        await self._ask(what, line, request, TxnOffsetCommitResponse, _position_codes, deadline)

    async def end(self, deadline: Deadline, *, committed: bool) -> None:
        """Of a transaction that is COMMITTING or ABORTING. TimedOut: ask again, it may have been done."""
        book = self.book
        if book.written:
            identity = self._identity()
            request = EndTxnRequest(
                transactional_id=book.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=committed,
            )
            what = f"{'committing' if committed else 'aborting'} the transaction of {book.transactional_id}"
            try:
                reply = await self._ask(what, self._line, request, EndTxnResponse, _one_code, deadline)
            except TransactionFailed:
                if committed:
                    raise
                book.needs_new_epoch = True  # the coordinator has forgotten this producer, and its transaction with it
            else:
                if reply.producer_id >= 0 and book.version >= JOINS_BY_WRITING:
                    book.ended(ProducerIdentity(ProducerId(reply.producer_id), reply.producer_epoch))
                    return
        if book.needs_new_epoch:
            book.written = False
            await self._take_new_epoch(deadline)
        book.ended()

    async def _take_new_epoch(self, deadline: Deadline) -> None:
        """Nobody knows which sequence would come next: a new epoch begins anew (KIP-360)."""
        identity = self._identity()
        request = InitProducerIdRequest(
            transactional_id=self.book.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            enable2_pc=self._config.transaction_two_phase_commit_enable,
        )
        reply = await self._init(request, _SAYS_WHO_IT_WAS_SINCE, deadline)
        self.book.renewed(ProducerIdentity(ProducerId(reply.producer_id), reply.producer_epoch))

    def _identity(self) -> ProducerIdentity:
        if self.book.identity is None:
            raise InvalidState(f"the producer {Stage.NEW.value}: call start() first")
        return self.book.identity

    async def _version(self, line: Line, request: type[Message], deadline: Deadline) -> int:
        async def once() -> int:
            return (await line.connected()).version_of(request)

        return await self._cluster.retrying("finding the coordinator", once, deadline)

    async def _ask(
        self,
        what: str,
        line: Line,
        request: Message,
        response: type[M],
        codes: Callable[[M], Iterable[int]],
        deadline: Deadline,
    ) -> M:
        older = self.book.version < JOINS_BY_WRITING
        limit = ADD_BEFORE_WRITING_MAX.get(type(request)) if older else None

        async def once() -> M:
            return await line.ask(request, response, limit=limit)

        return await self._persist(what, type(request), line, once, codes, deadline)

    async def _persist(
        self,
        what: str,
        request: type[Message],
        line: Line,
        once: Callable[[], Awaitable[M]],
        codes: Callable[[M], Iterable[int]],
        deadline: Deadline,
    ) -> M:
        """Until the answer is yes. What a no means goes into the book, and is raised."""
        tries = 0
        while True:
            error: ClientError | BrokerError
            pause_s = self._cluster.backoff.delay_s(tries)
            try:
                async with asyncio.timeout(deadline.remaining_s):
                    reply = await once()
            except TimeoutError:
                self.book.in_doubt = self.book.stage is Stage.COMMITTING
                raise TimedOut(f"{what} did not succeed within {deadline.timeout_ms} ms") from None
            except (ClientError, BrokerError) as failure:
                if not worth_retrying(failure) and not isinstance(failure, BadReply):
                    reaction = react(request, failure.code) if isinstance(failure, BrokerError) else Reaction.FATAL
                    raise self.book.fail(reaction, failure) from failure
                error = failure
                self.book.in_doubt = self.book.stage is Stage.COMMITTING
            else:
                code = next((error_code(number) for number in codes(reply) if number), ErrorCode.NONE)
                reaction = react(request, code)
                if reaction is Reaction.DONE:
                    return reply
                error = refusal(code, code.description, what)
                if reaction not in {Reaction.RETRY, Reaction.MOVED}:
                    raise self.book.fail(reaction, error) from error
                if reaction is Reaction.MOVED:
                    await line.close()
                if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    pause_s = min(pause_s, _CONCURRENT_PAUSE_S)
            tries += 1
            if pause_s >= deadline.remaining_s:
                raise TimedOut(
                    f"{what} did not succeed within {deadline.timeout_ms} ms and {tries} attempts; last: {error}"
                ) from error
            log.debug("%s: attempt %d failed: %s", what, tries, error)
            await asyncio.sleep(pause_s)


def _one_code(reply: InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse) -> Iterable[int]:
    return (reply.error_code,)


def _partition_codes(reply: AddPartitionsToTxnResponse) -> Iterable[int]:
    return [
        each.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


def _position_codes(reply: TxnOffsetCommitResponse) -> Iterable[int]:
    return [each.error_code for topic in reply.topics for each in topic.partitions]


def _positions(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
