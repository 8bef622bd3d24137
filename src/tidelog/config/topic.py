"""A topic's effective settings: Kafka's keys with dots turned into underscores, parsed and checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.config.keys import TOPIC_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.broker import BrokerConfig
    from tidelog.config.definition import Definition, Value

DAY_MS = 24 * 60 * 60 * 1000
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What the log, the partition and the handlers need to know. `keys/topic.py` says how each is parsed."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = 2**63 - 1
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False
    tidelog_fsync_before_ack: str = "auto"
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    tidelog_observer_racks: tuple[str, ...] = ()

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy


def resolve_topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The settings of a topic with `overrides` of its own on a broker with these settings.

    Stored overrides were validated when they were set. One that this version does not understand or allow any more
    must not keep the topic from opening, so the broker's value stands in for it.
    """
    values: dict[str, Any] = {}
    for name, definition in TOPIC_KEYS.items():
        value = _own_value(definition, overrides.get(name))
        if value is None:
            value = broker.value(definition.broker_key) if definition.broker_key else definition.default
        values[definition.attribute] = value
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    internal_segment_bytes = values.pop("internal_segment_bytes")
    if internal_segment_bytes is not None:
        values["segment_bytes"] = internal_segment_bytes
    return TopicConfig(**values)


def _own_value(definition: Definition, text: str | None) -> Value:
    if text is None:
        return None
    try:
        return definition.parse(text)
    except ValueError:
        return None
