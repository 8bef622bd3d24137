"""Requests that wait for a partition's high watermark: produce for its batches to be safe, fetch for news.

No clock and no loop here: partitions call in, the owner is called back once. Whoever parks a request also arms its
timeout and calls `give_up`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.errors import BrokerError
    from tidelog.types import TopicPartition


class Watched(Protocol):
    """What a fetch wait needs of a partition."""

    def unwatch(self, wait: FetchWait) -> None: ...


def nobody() -> None:
    """Is called back while nobody waits, and when it is over."""


class ProduceWait:
    """Waits until the batches of one request have all been reached by their partitions' high watermarks."""

    __slots__ = ("failures", "on_done", "outstanding")

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.on_done = on_done
        self.outstanding: set[TopicPartition] = set()
        self.failures: dict[TopicPartition, BrokerError] = {}

    def reached(self, partition: TopicPartition) -> None:
        self.outstanding.discard(partition)
        if not self.outstanding:
            # Who is called back holds this wait: letting go of it leaves no ring for the garbage collector.
            on_done, self.on_done = self.on_done, nobody
            on_done()

    def failed(self, partition: TopicPartition, error: BrokerError) -> None:
        self.failures[partition] = error
        self.reached(partition)


class FetchWait:
    """Waits until enough bytes have become visible over all the partitions of one fetch."""

    __slots__ = ("bytes_wanted", "on_done", "partitions")

    def __init__(self, bytes_wanted: int, on_done: Callable[[], None]) -> None:
        self.bytes_wanted = bytes_wanted
        self.on_done = on_done
        self.partitions: list[Watched] = []

    def more(self, bytes_visible: int) -> None:
        self.bytes_wanted -= bytes_visible
        if self.bytes_wanted <= 0:
            self.wake()

    def wake(self) -> None:
        """Ends the wait whatever the bytes: enough have come, or a partition has news that cannot wait."""
        on_done = self.on_done
        self.give_up()
        on_done()

    def give_up(self) -> None:
        self.on_done = nobody
        for partition in self.partitions:
            partition.unwatch(self)
        self.partitions.clear()


HURRY_MS = 2_000
HURRIED_WAIT_MS = 20


class FollowerFetches:
    """The waiting fetches of one broker that follows partitions led here.

    When this broker comes to lead a partition, nothing in it can become safe before its followers ask for it, and they
    learn of the new leader at their own time. Until they surely have, their fetches are not kept waiting for long: a
    fetch that waits cannot be joined by another partition.
    """

    __slots__ = ("_hurry_until_ms", "_waits")

    def __init__(self) -> None:
        self._waits: dict[FetchWait, None] = {}
        self._hurry_until_ms = -(2**62)

    def expect_news(self, now_ms: int) -> None:
        """The broker will have partitions to ask for that it did not ask for yet."""
        self._hurry_until_ms = now_ms + HURRY_MS
        for wait in tuple(self._waits):
            wait.wake()

    def patience_ms(self, now_ms: int, wish_ms: int) -> int:
        """How long a fetch may wait, of what its sender allows."""
        return min(wish_ms, HURRIED_WAIT_MS) if now_ms < self._hurry_until_ms else wish_ms

    def watch(self, wait: FetchWait) -> None:
        self._waits[wait] = None
        wait.partitions.append(self)

    def unwatch(self, wait: FetchWait) -> None:
        self._waits.pop(wait, None)
