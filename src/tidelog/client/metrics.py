"""What a client counts while it works, and what it tells of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.wire.api_keys import api_name

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Of one kind of request. Times are from sending to the answer, so they include what the broker waits for."""

    sent: int
    answered: int
    bytes_sent: int
    bytes_received: int
    time_total_ms: float
    """Of those answered."""
    time_max_ms: float

    @property
    def time_mean_ms(self) -> float:
        return self.time_total_ms / self.answered if self.answered else 0.0


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """Since the client was made."""

    connections_open: int
    """Now."""
    connections_opened: int
    connections_failed: int
    """Attempts that led to none."""
    authentications: int
    """Sessions renewed on a connection included."""
    authentications_failed: int
    metadata_refreshes: int
    retries: int
    """Calls tried again after an error that may pass. Batches of producers count apart."""
    throttles: int
    """Answers with which brokers asked to be left alone for a while, for this client's quota is used up."""
    throttled_ms: int
    """For how long, all together. Nothing is sent on that connection meanwhile."""
    requests: Mapping[str, RequestMetrics]
    """By the names of Kafka's protocol, such as FETCH."""

    @property
    def requests_sent(self) -> int:
        return sum(each.sent for each in self.requests.values())

    @property
    def bytes_sent(self) -> int:
        return sum(each.bytes_sent for each in self.requests.values())

    @property
    def bytes_received(self) -> int:
        return sum(each.bytes_received for each in self.requests.values())


@dataclass(slots=True)
class RequestCounters:
    sent: int = 0
    answered: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    time_total_s: float = 0.0
    time_max_s: float = 0.0

    def answer(self, size: int, took_s: float) -> None:
        self.answered += 1
        self.bytes_received += size
        self.time_total_s += took_s
        self.time_max_s = max(self.time_max_s, took_s)


@dataclass(slots=True)
class Counters:
    """Shared by all connections of a client."""

    connections_opened: int = 0
    connections_failed: int = 0
    authentications: int = 0
    authentications_failed: int = 0
    metadata_refreshes: int = 0
    retries: int = 0
    throttles: int = 0
    throttled_ms: int = 0
    requests: dict[int, RequestCounters] = field(default_factory=dict)
    """By API key."""

    def sending(self, api: int, size: int) -> RequestCounters:
        counters = self.requests.get(api)
        if counters is None:
            counters = self.requests[api] = RequestCounters()
        counters.sent += 1
        counters.bytes_sent += size
        return counters

    def snapshot(self, connections_open: int) -> ClientMetrics:
        return ClientMetrics(
            connections_open=connections_open,
            connections_opened=self.connections_opened,
            connections_failed=self.connections_failed,
            authentications=self.authentications,
            authentications_failed=self.authentications_failed,
            metadata_refreshes=self.metadata_refreshes,
            retries=self.retries,
            throttles=self.throttles,
            throttled_ms=self.throttled_ms,
            requests={
                api_name(api): RequestMetrics(
                    each.sent,
                    each.answered,
                    each.bytes_sent,
                    each.bytes_received,
                    each.time_total_s * 1000,
                    each.time_max_s * 1000,
                )
                for api, each in sorted(self.requests.items())
            },
        )
