"""The settings of the group coordinator, taken once from the broker's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Each field is Kafka's key of nearly the same name; `config/keys/coordinators.py` says what it means."""

    rebalance_protocols: frozenset[str] = frozenset({"classic", "consumer"})

    # Classic groups
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1

    # Committed offsets
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    record_bytes_max: int = 1_048_588
    """What one batch on the internal topic may hold (message.max.bytes): more is refused before it is appended."""

    # Groups of the newer protocol
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_min_heartbeat_interval_ms: int = 5000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000

    @classmethod
    def from_broker(cls, broker: BrokerConfig) -> GroupConfig:
        return cls(
            rebalance_protocols=frozenset(broker.group_coordinator_rebalance_protocols),
            min_session_timeout_ms=broker.group_min_session_timeout_ms,
            max_session_timeout_ms=broker.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=broker.group_initial_rebalance_delay_ms,
            max_size=broker.group_max_size,
            offset_metadata_max_bytes=broker.offset_metadata_max_bytes,
            offsets_retention_ms=broker.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=broker.offsets_retention_check_interval_ms,
            record_bytes_max=broker.message_max_bytes,
            consumer_session_timeout_ms=broker.group_consumer_session_timeout_ms,
            consumer_min_session_timeout_ms=broker.group_consumer_min_session_timeout_ms,
            consumer_max_session_timeout_ms=broker.group_consumer_max_session_timeout_ms,
            consumer_heartbeat_interval_ms=broker.group_consumer_heartbeat_interval_ms,
            consumer_min_heartbeat_interval_ms=broker.group_consumer_min_heartbeat_interval_ms,
            consumer_max_heartbeat_interval_ms=broker.group_consumer_max_heartbeat_interval_ms,
            consumer_max_size=broker.group_consumer_max_size,
            consumer_assignors=tuple(broker.group_consumer_assignors),
            consumer_migration_policy=broker.group_consumer_migration_policy,
            consumer_regex_refresh_interval_ms=broker.group_consumer_regex_refresh_interval_ms,
        )
