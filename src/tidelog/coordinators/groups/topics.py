"""What groups need to know of the cluster's topics, and of whoever sent a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class ClusterTopics(Protocol):
    """A view of the topics there are. It may show newer topics each time it is asked."""

    def partitions(self, topic: str) -> int | None:
        """How many partitions the topic has; None when there is no such topic."""

    def topic_id(self, topic: str) -> bytes | None: ...

    def name(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]: ...

    def racks(self, topic: str, partition: int) -> Iterable[str]:
        """The racks in which the partition has a replica."""


class Caller(NamedTuple):
    """Whoever sent a request, and what is known of the topics while it is decided."""

    version: int
    """The version of the request, which decides some of its meaning."""
    client_id: str
    """Empty when the client gave none."""
    client_host: str
    """As Kafka shows it: a slash and the address."""
    topics: ClusterTopics
    guard: Any = None
    """Leave to store something inside a transaction, for requests that do."""
