"""A producer's transactions, from begin to end, with the records in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from tidelog.client.backoff import Deadline
from tidelog.client.errors import ClientError, InvalidState, TransactionFailed
from tidelog.client.offsets import OffsetAndMetadata
from tidelog.client.transactions.book import Stage
from tidelog.client.transactions.handles import TransactionHandle, TransactionPart, sequences
from tidelog.client.transactions.reactions import Reaction
from tidelog.errors import BrokerError
from tidelog.types import Offset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from tidelog.client.accumulator import Accumulator
    from tidelog.client.background import Background
    from tidelog.client.config import ProducerConfig
    from tidelog.client.groups.member import GroupMetadata
    from tidelog.client.sender import Receipt, Sender
    from tidelog.client.transactions.coordination import Coordination
    from tidelog.client.transactions.handles import PreparedTransaction
    from tidelog.types import TopicPartition

log = logging.getLogger(__name__)


class Transactions:
    def __init__(
        self,
        config: ProducerConfig,
        coordination: Coordination,
        accumulator: Accumulator[Receipt],
        sender: Sender,
        background: Background,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._coordination = coordination
        self._accumulator = accumulator
        self._sender = sender
        self._background = background
        self._flush = flush
        self._ending = asyncio.Lock()
        self.book = coordination.book

    async def start(self, handle: TransactionHandle | None, *, keep_prepared: bool) -> None:
        if handle is None:
            await self._coordination.initialise(self._deadline(), keep_prepared=keep_prepared)
            return
        self.book.join(handle)
        for partition, next_sequence in handle.partitions:
            self._accumulator.resume(partition, handle.identity, next_sequence)

    async def abort_open(self) -> None:
        """Now, rather than when it times out; what is prepared stays. Fails quietly, for it will time out."""
        if not self.book.joined and self.book.stage in {Stage.OPEN, Stage.FAILED, Stage.ABORTING}:
            with contextlib.suppress(ClientError, BrokerError):
                await self.abort()

    async def close(self) -> None:
        await self._coordination.close()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.begin()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            self._abort_soon()
            raise
        except BaseException as error:
            await self.abort_after(error)
            raise
        try:
            await self.commit()
        except TransactionFailed as error:
            await self.abort_after(error)
            raise
        except asyncio.CancelledError:
            if self.book.open:
                self._abort_soon()
            raise

    async def begin(self) -> None:
        if self.book.stage is Stage.ABORTING:
            await self.abort()
        self.book.begin(self._coordination.transaction_version)

    async def commit(self) -> None:
        async with self._ending:
            if self.book.stage is Stage.OPEN:
                await self._settled()
            self.book.begin_commit()
            await self._coordination.end(self._deadline(), committed=True)

    async def abort(self) -> None:
        under_way = self.book.stage is Stage.ABORTING
        async with self._ending:
            if under_way and self.book.stage is Stage.READY:
                return  # what a cancelled task left to the background is done
            self.book.begin_abort()
            await self._finish_abort()

    async def prepare(self) -> PreparedTransaction:
        async with self._ending:
            await self._settled()
            return self.book.prepare()

    async def renew(self) -> None:
        async with self._ending:
            if self.book.stage is not Stage.NEW:  # else an earlier call was not answered
                self.book.leave_to_others()
            await self._coordination.initialise(self._deadline())

    async def complete(self, prepared: PreparedTransaction | None) -> bool:
        found = self.book.prepared
        if self.book.stage is not Stage.PREPARED or found is None:
            raise InvalidState(f"the producer {self.book.stage.value}: there is nothing prepared to complete")
        same = prepared is not None and prepared.identity == found.identity
        await (self.commit() if same else self.abort())
        return same

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata
    ) -> None:
        self.book.check_committable()
        full = {
            partition: OffsetAndMetadata(Offset(position)) if isinstance(position, int) else position
            for partition, position in offsets.items()
        }
        if full:
            await self._coordination.send_offsets(full, group, self._deadline())

    def lose(self, error: Exception) -> None:
        if self.book.open:
            known = error if isinstance(error, ClientError | BrokerError) else ClientError(str(error))
            self.book.fail(Reaction.ABORT, known)

    # --- spread over several processes ---

    async def lend(self, partitions: Iterable[TopicPartition]) -> TransactionHandle:
        wanted = list(dict.fromkeys(partitions))
        self.book.check_may_lend(wanted)
        await self._coordination.add_partitions(wanted, self._deadline())
        await self._flush()
        self.book.check_may_lend(wanted)
        assert self.book.identity is not None
        numbers: dict[TopicPartition, int] = {}
        for partition in wanted:
            if self._accumulator.holds(partition):
                raise InvalidState(f"{partition} is being written to here: lend it before or after that")
            numbers[partition] = self._accumulator.next_sequence(partition, self.book.identity)
        return self.book.lend(numbers.items())

    def take_back(self, part: TransactionPart) -> None:
        self.book.take_back(part)
        for partition, next_sequence in part.partitions:
            self._accumulator.resume(partition, part.identity, next_sequence)

    async def leave(self, handle: TransactionHandle | None) -> TransactionPart:
        if handle is None:
            raise InvalidState("this producer has no part in another's transaction: call commit() or abort()")
        await self._settled()
        identity = handle.identity
        numbers = {
            partition: self._accumulator.next_sequence(partition, identity) for partition, _ in handle.partitions
        }
        return TransactionPart(
            handle.transactional_id, handle.producer_id, handle.epoch, self.book.written, sequences(numbers)
        )

    # ---

    async def _settled(self) -> None:
        """Everything sent so far is stored; TransactionFailed if something is not."""
        self.book.check_committable()
        await self._flush()
        self.book.check_committable()

    def _abort_soon(self) -> None:
        """For whoever is cancelled, and cannot wait: the abort is under way, and `begin` will wait for it."""
        with contextlib.suppress(ClientError):
            self.book.begin_abort()
            self._background.start(self._abort_quietly(), "tidelog producer aborts")

    async def _abort_quietly(self) -> None:
        try:
            async with self._ending:
                if self.book.stage is Stage.ABORTING:
                    await self._finish_abort()
        except (ClientError, BrokerError) as error:
            log.warning("aborting the transaction of %s failed: %s", self.book.transactional_id, error)

    async def abort_after(self, error: BaseException) -> None:
        """The error is what matters; an abort that fails as well is only noted on it."""
        if self.book.stage in {Stage.STOPPED, Stage.READY, Stage.COMMITTING}:
            return
        try:
            await self.abort()
        except (ClientError, BrokerError) as another:
            error.add_note(f"aborting the transaction failed too: {another}")

    async def _finish_abort(self) -> None:
        # What is in flight is waited for: by the older rules, what arrives after the abort would hang for ever.
        failure = self.book.failure or TransactionFailed("the transaction was aborted")
        self._sender.give_up_waiting(failure)
        await self._flush()
        if self._accumulator.identity_spent:
            self._accumulator.identity_spent = False
            self.book.needs_new_epoch = True
        await self._coordination.end(self._deadline(), committed=False)

    def _deadline(self) -> Deadline:
        return Deadline(self._config.max_block_ms)
