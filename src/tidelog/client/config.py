"""The clients' settings, under Kafka's own names with dots turned into underscores."""

from __future__ import annotations

from dataclasses import dataclass, field
from ssl import SSLContext  # noqa: TC003 - settings are read by the types of their fields
from typing import TYPE_CHECKING, Any, Literal, Self

from tidelog.assign import CLASSIC
from tidelog.records.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping

ACKS_ALL = -1

_CODECS = {codec.name.lower(): codec for codec in Codec}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client needs to talk to a cluster."""

    bootstrap_servers: str | tuple[str, ...] = ""
    """Brokers to begin with, for clients that are made from a config alone."""
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
    reconnect_backoff_ms: int = 50
    """How long to leave a broker alone that could not be reached; doubles with every failure, give or take a fifth."""
    reconnect_backoff_max_ms: int = 1000
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ssl_cafile: str | None = None
    """PEM file of the certificates to trust. None: those that the operating system trusts."""
    ssl_certfile: str | None = None
    """PEM file with the client's own certificate, for brokers that ask for one, and those between it and the CA's."""
    ssl_keyfile: str | None = None
    """PEM file of its private key. None: it is in ssl_certfile too."""
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    """Whether the broker's certificate must name the host that was connected to."""
    ssl_truststore_certificates: str | None = None
    """The text that ssl_cafile would hold."""
    ssl_keystore_certificate_chain: str | None = None
    """The text that ssl_certfile would hold."""
    ssl_keystore_key: str | None = field(default=None, repr=False)
    """The text that ssl_keyfile would hold."""
    ssl_context: SSLContext | None = None
    """Instead of all the others: TLS as the application has set it up."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)

    @classmethod
    def from_kafka(cls, settings: Mapping[str, Any]) -> Self:
        """From settings as Kafka names them, such as `bootstrap.servers`; numbers and truth values may be text."""
        from tidelog.client.kafka_settings import read_settings  # noqa: PLC0415 - few need it

        return read_settings(cls, settings)


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
    partitioner: Literal["murmur2", "random", "round_robin"] = "murmur2"
    """Where records go that name no partition. "murmur2": by the key's hash, as Java's clients do, and keyless ones to
    one partition until its batch is full."""
    transactional_id: str | None = None
    """A name that the producer keeps over restarts: it makes transactions possible, and fences its earlier lives."""
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts a transaction that is open for longer."""
    transaction_two_phase_commit_enable: bool = False
    """Transactions never time out, since somebody else decides when they end (KIP-939). The broker must allow it."""

    def __post_init__(self) -> None:
        if self.transactional_id == "":
            raise ValueError("transactional_id must not be empty; leave it out to produce without transactions")
        if self.transactional_id is not None and not self.idempotent:
            raise ValueError("transactional_id needs acks=all and enable_idempotence: transactions are built on them")
        if self.transaction_two_phase_commit_enable and self.transactional_id is None:
            raise ValueError("transaction_two_phase_commit_enable needs a transactional_id")
        if self.partitioner not in {"murmur2", "random", "round_robin"}:
            raise ValueError(f"partitioner is murmur2, random or round_robin, not {self.partitioner!r}")
        if self.acks not in {"all", -1, 0, 1}:
            raise ValueError(f"acks is all, 0 or 1, not {self.acks!r}")
        if self.enable_idempotence and self.required_acks != ACKS_ALL:
            raise ValueError("enable_idempotence needs acks=all: weaker acknowledgements cannot promise 'exactly once'")
        if self.compression_type not in _CODECS:
            raise ValueError(f"compression_type is one of {', '.join(_CODECS)}, not {self.compression_type!r}")
        for name in (
            "batch_size",
            "buffer_memory",
            "max_request_size",
            "max_in_flight_requests_per_connection",
            "transaction_timeout_ms",
        ):
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
    group_id: str | None = None
    group_instance_id: str | None = None
    """A name that the member keeps over restarts: it gets its partitions back, and nobody else notices."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """"consumer" is the newer one (KIP-848), where the broker divides the partitions."""
    group_remote_assignor: str | None = None
    """With the newer protocol: uniform or range. None leaves it to the broker."""
    partition_assignment_strategy: str | tuple[str, ...] = ("range", "cooperative-sticky")
    """With the classic protocol, in order of preference: range, roundrobin, sticky, cooperative-sticky. Members keep
    reading during rebalances when cooperative-sticky is the only one."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """An application that has not asked for records for this long loses its partitions to the other members."""
    enable_auto_commit: bool = True
    """In a group: commits positions by itself, whenever the application comes for more records and when it closes."""
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: Literal["earliest", "latest", "none"] | None = None
    """Where to begin without a commit, and where to go on when the next offset is gone; "none" raises NoOffset and
    OffsetOutOfRange. None: "latest" for members of a group, as with every Kafka client, otherwise "none"."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    allow_auto_create_topics: bool = True
    client_rack: str = ""
    """Where this client is: brokers may then send it to a replica near by."""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 1 << 20
    max_poll_records: int = 500
    prefetch_max_bytes: int = 64 << 20
    """Bytes of records, as they came, after which nothing more is fetched until the application has read some."""
    prefetch_max_records: int = 1_000_000
    check_crcs: bool = True

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in {"earliest", "latest", "none", None}:
            raise ValueError(f"auto_offset_reset is earliest, latest or none, not {self.auto_offset_reset!r}")
        if self.isolation_level not in {"read_uncommitted", "read_committed"}:
            raise ValueError(f"isolation_level is read_uncommitted or read_committed, not {self.isolation_level!r}")
        if self.group_protocol not in {"classic", "consumer"}:
            raise ValueError(f"group_protocol is classic or consumer, not {self.group_protocol!r}")
        if self.group_id == "":
            raise ValueError("group_id must not be empty; leave it out to read without a group")
        unknown = [name for name in self.assignors if name not in CLASSIC]
        if unknown or not self.assignors:
            raise ValueError(f"partition_assignment_strategy is of {', '.join(CLASSIC)}, not {', '.join(unknown)!r}")
        for name in (
            "fetch_max_bytes",
            "max_partition_fetch_bytes",
            "max_poll_records",
            "prefetch_max_bytes",
            "prefetch_max_records",
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "max_poll_interval_ms",
            "auto_commit_interval_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be below session_timeout_ms; a third of it is usual")

    @property
    def assignors(self) -> tuple[str, ...]:
        strategy = self.partition_assignment_strategy
        return (strategy,) if isinstance(strategy, str) else strategy

    @property
    def reset(self) -> Literal["earliest", "latest", "none"]:
        if self.auto_offset_reset is not None:
            return self.auto_offset_reset
        return "none" if self.group_id is None else "latest"

    @property
    def committed_only(self) -> bool:
        return self.isolation_level == "read_committed"
