"""The producer without `await`.

`send` hands the record over and returns; the future it gives is done when the broker has stored it, or holds the
exception that says why not, also for what the asyncio producer would have raised at once. Callbacks of these futures
run in the clients' own thread: they must be quick, and must not use a blocking client.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

from tidelog.client import producer as asynchronous
from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.errors import Closed, TransactionFailed
from tidelog.client.serializing import K, V

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from pyarrow import RecordBatch, Table  # type: ignore[import-untyped]

    from tidelog.client.arrow_sending import BatchDelivery
    from tidelog.client.config import ProducerConfig
    from tidelog.client.groups.member import GroupMetadata
    from tidelog.client.metrics import ClientMetrics
    from tidelog.client.offsets import OffsetAndMetadata
    from tidelog.client.partitioner import Partitioner, PartitionerName
    from tidelog.client.producer_settings import ProducerSettings
    from tidelog.client.sender import RecordMetadata
    from tidelog.client.serializing import Serializer
    from tidelog.client.transactions.handles import PreparedTransaction, TransactionHandle, TransactionPart
    from tidelog.clock import Clock
    from tidelog.types import TopicPartition

T = TypeVar("T")

_HANDED_OVER_MAX: Final = 1000
"""Records that the loop has not looked at yet. Whoever sends more waits, and leaves the interpreter to the loop."""

_TAKEN_AT_ONCE_MAX: Final = 200

_WHEN_INTERRUPTED_S: Final = 2.0
"""For delivering what is buffered, or aborting what is open, after Ctrl-C."""


class _Handed(NamedTuple):
    future: Future[RecordMetadata]
    topic: str
    value: Any
    key: Any
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int | None
    partition: int | None


class Producer(Generic[K, V]):
    """One per program is enough: it may be shared by all threads, and so is a transaction of its."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | ProducerConfig,
        config: ProducerConfig | None = None,
        *,
        key_serializer: Serializer[K] | Callable[[K], bytes] | None = None,
        value_serializer: Serializer[V] | Callable[[V], bytes] | None = None,
        partitioner: PartitionerName | Partitioner | None = None,
        keep_prepared: bool = False,
        joining: TransactionHandle | None = None,
        clock: Clock | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """As the asyncio producer's."""
        self._loop = LoopThread.shared()
        self._producer: asynchronous.Producer[K, V] = self._loop.call(
            partial(
                asynchronous.Producer,
                bootstrap,
                config,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner,
                keep_prepared=keep_prepared,
                joining=joining,
                clock=clock,
                **settings,
            )
        )
        self.config = self._producer.config
        self._handed: deque[_Handed] = deque()
        self._taking = False
        self._changed = threading.Condition()
        self._closed = False

    @classmethod
    def join_transaction(
        cls,
        bootstrap: str | Sequence[str] | ProducerConfig,
        handle: TransactionHandle,
        config: ProducerConfig | None = None,
        *,
        key_serializer: Serializer[K] | Callable[[K], bytes] | None = None,
        value_serializer: Serializer[V] | Callable[[V], bytes] | None = None,
        partitioner: PartitionerName | Partitioner | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> Producer[K, V]:
        """A producer that writes into a transaction of another process, to the partitions that the handle names.

        Call `leave` at the end, and send what it gives to that process, which alone commits or aborts.
        """
        return cls(
            bootstrap,
            config,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            joining=handle,
            **settings,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, KeyboardInterrupt):
            self.close()
            return
        # A broker that answers gets what is on its way; for one that does not, nobody waits who pressed Ctrl-C.
        try:
            self._all_taken(_WHEN_INTERRUPTED_S)
            self._loop.run(_within(_WHEN_INTERRUPTED_S, self._wind_up))
        finally:
            self.close(flush=False)

    def start(self) -> None:
        """Connects to the cluster; BrokersUnreachable when no broker answers. Takes the transactional id over."""
        self._loop.run(self._producer.start())
        self._loop.keep(self)

    def close(self, *, flush: bool = True) -> None:
        """Delivers what is buffered, or aborts the open transaction; `flush=False` leaves that to time out."""
        if self._closed:
            return
        try:
            if flush:
                self._all_taken()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            try:
                self._loop.run(self._producer.close(flush=flush))
            finally:
                self._loop.forget(self)
                self._drop_handed(Closed("the producer was closed before the record was sent"))

    # --- records ---

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Future[RecordMetadata]:
        """Hands a record over, waiting while too many are on their way, and gives the future of its delivery."""
        future: Future[RecordMetadata] = Future()
        handed = _Handed(future, topic, value, key, headers, timestamp_ms, partition)
        with self._changed:
            while len(self._handed) >= _HANDED_OVER_MAX and not self._closed:
                self._changed.wait()
            if self._closed:
                raise Closed("the producer is closed")
            self._handed.append(handed)
            if self._taking:
                return future
            self._taking = True
        self._loop.start(self._take())
        return future

    def send_and_wait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """As `send`, and waits until the record is stored. Slow for many records: each waits for its own round trip."""
        return self.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        ).result()

    def send_batch(self, topic: str | None, table: RecordBatch | Table) -> Future[BatchDelivery]:
        """Sends every row of a pyarrow table or record batch, with the columns of Spark's Kafka sink: `value`, and if
        wanted `key`, `headers`, `partition` and `timestamp`; also `topic`, if none is named here.

        It returns when all rows are in the buffer, and gives one future for all of them. Keys and values are bytes or
        text, which no serializer sees. Rows go out at once, in batches as large as max_request_size allows.
        """
        self._all_taken()
        future: Future[BatchDelivery] = Future()
        delivery = self._loop.run(self._producer.send_batch(topic, table))
        self._loop.call(delivery.add_done_callback, partial(_settle, future))
        return future

    def flush(self) -> None:
        """Sends everything at once and waits until each record sent so far is stored or has failed."""
        self._all_taken()
        self._loop.run(self._producer.flush())

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are neither stored nor failed yet."""
        return self._producer.buffered_bytes

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, counted."""
        return self._loop.call(self._producer.metrics)

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has."""
        return self._loop.run(self._producer.partitions_for(topic))

    async def _take(self) -> None:
        """In the loop: gives what was handed over to the asyncio producer, one after the other, until nothing is left.

        Where that waits for room, so do, in the end, those who send.
        """
        while True:
            with self._changed:
                if not self._handed:
                    self._taking = False
                    self._changed.notify_all()
                    return
                some = [self._handed.popleft() for _ in range(min(len(self._handed), _TAKEN_AT_ONCE_MAX))]
                self._changed.notify_all()
            for handed in some:
                await self._send(handed)
            await asyncio.sleep(0)  # the others of the loop are to have their turns

    async def _send(self, handed: _Handed) -> None:
        try:
            if self._producer._put_now(*handed) is None:  # noqa: SLF001 - this class is its other half
                await self._producer._put(*handed)  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to this record
            self._producer._lose(error)  # noqa: SLF001
            handed.future.set_exception(error)
        except asyncio.CancelledError:
            handed.future.set_exception(Closed("the program ended before the record was sent"))
            raise

    def _all_taken(self, within_s: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not (self._handed or self._taking),
                self._loop.patience_s if within_s is None else within_s,
            )

    def _drop_handed(self, error: Exception) -> None:
        with self._changed:
            dropped = list(self._handed)
            self._handed.clear()
            self._changed.notify_all()
        for handed in dropped:
            handed.future.set_exception(error)

    async def _wind_up(self) -> None:
        if self._producer._transactions is not None:  # noqa: SLF001 - this class is its other half
            await self._producer._transactions.abort_open()  # noqa: SLF001
        await self._producer.flush()

    # --- transactions ---

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """`with producer.transaction():` commits at the end, and aborts when an exception leaves the block."""
        self.begin()
        try:
            yield
        except BaseException as error:
            self._abort_after(error)
            raise
        try:
            self.commit()
        except (TransactionFailed, KeyboardInterrupt) as error:
            self._abort_after(error)
            raise

    def begin(self) -> None:
        self._loop.run(self._producer.begin())

    def commit(self) -> None:
        """Stores what is buffered, and lets readers see all of the transaction.

        TransactionFailed: something of it is lost, abort and do it again. TimedOut: it may be done, call it again.
        """
        self._all_taken()
        self._loop.run(self._producer.commit())

    def abort(self) -> None:
        """Readers of committed records will never see what the transaction wrote."""
        self._all_taken()
        self._loop.run(self._producer.abort())

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata | str
    ) -> None:
        """Has the group go on from these offsets if the transaction is committed: `consumer.positions()` and
        `consumer.group_metadata()`, so that what was read and what was written for it count together, or not at all."""
        self._loop.run(self._producer.send_offsets(offsets, group))

    def prepare(self) -> PreparedTransaction:
        """Stores what is buffered. From here on the transaction can only be committed or aborted, here or elsewhere.

        Without `transaction_two_phase_commit_enable` it can still time out, and is aborted then.
        """
        self._all_taken()
        return self._loop.run(self._producer.prepare())

    def renew(self) -> None:
        """Takes the transactional id over anew, once what was prepared has been ended elsewhere. If it has not, it is
        aborted: whoever decides must be done by then."""
        self._loop.run(self._producer.renew())

    @property
    def prepared(self) -> PreparedTransaction | None:
        """What is prepared and waits for its outcome."""
        return self._producer.prepared

    def complete(self, prepared: PreparedTransaction | None) -> bool:
        """Commits what is prepared if it is the one that was decided on, and else aborts it; true if it was."""
        return self._loop.run(self._producer.complete(prepared))

    def transaction_handle(self, partitions: Iterable[TopicPartition]) -> TransactionHandle:
        """Lends partitions to a writer in another process, until `include` is called with what it did."""
        self._all_taken()
        return self._loop.run(self._producer.transaction_handle(partitions))

    def include(self, part: TransactionPart) -> None:
        """Takes back what another process has done in the transaction. Commit when all have come back."""
        self._loop.call(self._producer.include, part)

    def leave(self) -> TransactionPart:
        """Ends this process's part in another's transaction: everything is stored. Its owner `include`s the result."""
        self._all_taken()
        return self._loop.run(self._producer.leave())

    def _abort_after(self, error: BaseException) -> None:
        aborting = self._producer._transactional().abort_after  # noqa: SLF001
        if isinstance(error, KeyboardInterrupt):
            self._drop_handed(TransactionFailed("the transaction was interrupted"))
            self._loop.run(_within(_WHEN_INTERRUPTED_S, partial(aborting, error)))
        else:
            self._all_taken()
            self._loop.run(aborting(error))


async def _within(limit_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Does the work, or as much of it as there is time for."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await work()


def _settle(future: Future[T], delivery: asyncio.Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if delivery.cancelled():
        future.set_exception(Closed("the record was given up"))
        return
    error = delivery.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(delivery.result())
