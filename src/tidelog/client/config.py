"""The clients' settings, under Kafka's own names with dots turned into underscores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidelog.records.compression import Codec

ACKS_ALL = -1

_CODECS = {codec.name.lower(): codec for codec in Codec}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client needs to talk to a cluster."""

    client_id: str = "tidelog"
    request_timeout_ms: int = 30_000
    """A broker that has not answered for this long is given up and its connection closed."""
    default_api_timeout_ms: int = 60_000
    """How long a call such as `create_topic` goes on retrying."""
    socket_connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    metadata_max_age_ms: int = 300_000
    receive_message_max_bytes: int = 200 << 20
    """The largest reply taken from a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    acks: Literal["all", -1, 0, 1] = "all"
    enable_idempotence: bool | None = None
    """Retries never store a record twice. None: on exactly when acks is "all", which it needs."""
    compression_type: str = "none"
    linger_ms: int = 5
    """How long a record may wait for company before its batch is sent."""
    batch_size: int = 128 << 10
    """Bytes of records after which a batch is sent without waiting. A larger record travels alone."""
    buffer_memory: int = 32 << 20
    """Bytes of records not yet delivered; `send` waits when they are used up."""
    max_request_size: int = 1 << 20
    """The largest record taken, and how much goes into one request."""
    max_block_ms: int = 60_000
    """How long `send` waits for room in the buffer and for the topic to be known."""
    delivery_timeout_ms: int = 120_000
    """From `send` to success or failure, retries included."""
    max_in_flight_requests_per_connection: int = 5

    def __post_init__(self) -> None:
        if self.acks not in {"all", -1, 0, 1}:
            raise ValueError(f"acks is all, 0 or 1, not {self.acks!r}")
        if self.enable_idempotence and self.required_acks != ACKS_ALL:
            raise ValueError("enable_idempotence needs acks=all: weaker acknowledgements cannot promise 'exactly once'")
        if self.compression_type not in _CODECS:
            raise ValueError(f"compression_type is one of {', '.join(_CODECS)}, not {self.compression_type!r}")
        for name in ("batch_size", "buffer_memory", "max_request_size", "max_in_flight_requests_per_connection"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")

    @property
    def required_acks(self) -> int:
        return ACKS_ALL if self.acks == "all" else self.acks

    @property
    def idempotent(self) -> bool:
        return self.required_acks == ACKS_ALL if self.enable_idempotence is None else self.enable_idempotence

    @property
    def codec(self) -> Codec:
        return _CODECS[self.compression_type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 1 << 20
    max_poll_records: int = 500
    auto_offset_reset: Literal["earliest", "latest", "none"] = "none"
    """Where to go on when the partition no longer holds the next offset; "none" raises OffsetOutOfRange."""
    check_crcs: bool = True

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in {"earliest", "latest", "none"}:
            raise ValueError(f"auto_offset_reset is earliest, latest or none, not {self.auto_offset_reset!r}")
        for name in ("fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
