"""What the consumer without `await` does otherwise than pass on: iterating, committing soon, listening."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Final, Generic

from tidelog.client import consumer as asynchronous
from tidelog.client.arrow_batches import BATCH_BYTES_MAX
from tidelog.client.blocking.face import Face
from tidelog.client.fetching import K, V
from tidelog.client.groups.listener import RebalanceListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from pyarrow import RecordBatch  # type: ignore[import-untyped]

    from tidelog.client.fetching import ConsumerRecord
    from tidelog.types import TopicPartition


CLOSE_TIMEOUT_S: Final = 30.0


class Consuming(Face[asynchronous.Consumer[K, V]], Generic[K, V]):
    """For one thread at a time."""

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        """Waits for the next record."""
        if self._at_hand():
            # It does not come to an await: the detour over the loop's thread would cost more than the record.
            try:
                self._client.__anext__().send(None)
            except StopIteration as done:
                record: ConsumerRecord[K, V] = done.value
                return record
        return self._loop.run(self._client.__anext__())

    def _at_hand(self) -> bool:
        """Whether the next record was taken out already, and the group wants nothing.

        Only this thread's own calls change that, and none is under way.
        """
        client = self._client
        group = client._group  # noqa: SLF001 - this class is its other half
        return bool(client._ready) and (group is None or not group.attention)  # noqa: SLF001

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """In a group: commits if that is to happen by itself, and leaves. Then ends every task and connection."""
        try:
            self._loop.run(self._client.close(timeout_s))
        finally:
            self._loop.forget(self)

    def batches(self, *, max_bytes: int = BATCH_BYTES_MAX, headers: bool = True) -> Iterator[RecordBatch]:
        """Record batches without end, as `poll_batch` gives them and never empty: `for batch in consumer.batches()`."""
        return self._loop.iterate(self._client.batches(max_bytes=max_bytes, headers=headers))

    def commit_soon(self) -> Future[None]:
        """As `commit`, without waiting: what is committed is decided now, and the future tells how it went."""
        task = self._loop.call(self._client.commit_soon)
        return self._loop.start(_awaited(task))


async def _awaited(task: asyncio.Task[None]) -> None:
    await task


class _InAThread(RebalanceListener):
    """Calls a listener outside the loop's thread, so that it may use the consumer, which waits for that loop."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await _call(self._listener.on_assigned, partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await _call(self._listener.on_revoked, partitions)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await _call(self._listener.on_lost, partitions)


async def _call(tell: Callable[[frozenset[TopicPartition]], object], partitions: frozenset[TopicPartition]) -> None:
    result = await asyncio.to_thread(tell, partitions)
    if inspect.isawaitable(result):
        await result


def in_a_thread(listener: RebalanceListener | None) -> RebalanceListener | None:
    return None if listener is None else _InAThread(listener)
