"""All shards of one kind of coordinator on this broker: one for each partition of the internal topic that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidelog.coordinators.placement import partition_for
from tidelog.coordinators.runtime import Shard, ShardRuntime, nobody_acts
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.clock import Clock
    from tidelog.coordinators.runtime import StateLog

S = TypeVar("S", bound=Shard)


class Onlooker(Protocol):
    """Somebody who shows elsewhere what the coordinator stores."""

    def follow(self, partition: int, log: StateLog) -> StateLog:
        """A partition is taken over. The coordinator uses the log that is given back."""

    def resign(self, partition: int) -> None: ...


class Coordinator(Generic[S]):
    def __init__(
        self,
        topic: str,
        make_shard: Callable[[], S],
        partitions: Callable[[], int | None],
        clock: Clock,
        on_effect: Callable[[Any], None] = nobody_acts,
    ) -> None:
        """`partitions` tells how many partitions the internal topic has; None while there is no such topic."""
        self.topic = topic
        self._make_shard = make_shard
        self._partitions = partitions
        self._clock = clock
        self._on_effect = on_effect
        self._shards: dict[int, ShardRuntime[S]] = {}
        self.onlooker: Onlooker | None = None
        """To be set before the first partition is taken over."""

    def __iter__(self) -> Iterator[ShardRuntime[S]]:
        return iter(self._shards.values())

    def lead(self, partition: int, log: StateLog) -> None:
        """Takes over a partition: its state is loaded, and served from then on."""
        self.resign(partition)
        if self.onlooker is not None:
            log = self.onlooker.follow(partition, log)
        self._shards[partition] = ShardRuntime(
            f"{self.topic}-{partition}", self._make_shard, log, self._clock, self._on_effect
        )

    def resign(self, partition: int) -> None:
        runtime = self._shards.pop(partition, None)
        if runtime is not None:
            runtime.close()
            if self.onlooker is not None:
                self.onlooker.resign(partition)

    def close(self) -> None:
        for partition in list(self._shards):
            self.resign(partition)

    def partition_of(self, key: str) -> int | None:
        """The partition that holds the state of `key`; None while the internal topic is not there."""
        count = self._partitions()
        return None if count is None else partition_for(key, count)

    def at(self, partition: int) -> ShardRuntime[S] | None:
        """The shard of a partition; None if another broker leads it."""
        return self._shards.get(partition)

    def shard_of(self, key: str) -> ShardRuntime[S]:
        """The shard that decides on `key`. Raises BrokerError if it is not here."""
        partition = self.partition_of(key)
        if partition is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic {self.topic} is not there yet: try again")
        runtime = self._shards.get(partition)
        if runtime is None:
            raise BrokerError(ErrorCode.NOT_COORDINATOR, f"{key!r} is coordinated by another broker")
        return runtime
