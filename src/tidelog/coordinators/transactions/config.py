"""The settings of the transaction coordinator, taken once from the broker's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Each field is Kafka's key of nearly the same name; `config/keys/coordinators.py` says what it means."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * DAY_MS
    expiration_check_interval_ms: int = 3_600_000
    two_phase_commit_enable: bool = False
    record_bytes_max: int = 1_048_588
    """What one batch on the internal topic may hold (message.max.bytes): more is refused before it is appended."""

    @classmethod
    def from_broker(cls, broker: BrokerConfig) -> TransactionConfig:
        return cls(
            max_timeout_ms=broker.transaction_max_timeout_ms,
            id_expiration_ms=broker.transactional_id_expiration_ms,
            expiration_check_interval_ms=broker.transaction_remove_expired_transaction_cleanup_interval_ms,
            two_phase_commit_enable=broker.transaction_two_phase_commit_enable,
            record_bytes_max=broker.message_max_bytes,
        )
