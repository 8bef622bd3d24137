"""The producer's settings as keywords of its constructor; ProducerConfig says what they mean."""

from __future__ import annotations

from typing import Literal

from tidelog.client.client_settings import ClientSettings


class ProducerSettings(ClientSettings, total=False):
    acks: Literal["all", -1, 0, 1]
    enable_idempotence: bool | None
    compression_type: str
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_request_size: int
    max_block_ms: int
    delivery_timeout_ms: int
    max_in_flight_requests_per_connection: int
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
