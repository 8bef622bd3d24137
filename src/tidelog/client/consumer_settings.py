"""The consumer's settings as keywords of its constructor; ConsumerConfig says what they mean."""

from __future__ import annotations

from typing import Literal

from tidelog.client.client_settings import ClientSettings


class ConsumerSettings(ClientSettings, total=False):
    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    partition_assignment_strategy: str | tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: Literal["earliest", "latest", "none"] | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    allow_auto_create_topics: bool
    client_rack: str
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    prefetch_max_bytes: int
    prefetch_max_records: int
    check_crcs: bool
