"""A broker's effective settings: Kafka's keys with dots turned into underscores, parsed and checked once.

Four layers give a key its value, each over the one before: the default, the static properties the broker was started
with, and the two dynamic ones that were set while it ran, for all brokers and for this one. The object keeps the
layers, so that DescribeConfigs can say where a value comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog.config.keys import BROKER_KEYS
from tidelog.config.layers import Layers, read_layers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.definition import Value
    from tidelog.config.listeners import ListenerSet


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class BrokerConfig:
    """Made by `parse` alone: a generated `__init__` of so many fields would take longer than all the parsing.

    What each key means stands beside its definition in `config/keys/`.
    """

    layers: Layers
    endpoints: ListenerSet
    """What `listeners`, `advertised.listeners` and their kin together mean."""
    warnings: tuple[str, ...]
    """For the log at start: nothing that keeps the broker from running."""
    listener_overrides: Mapping[tuple[str, str], Value]
    """Values given as `listener.name.NAME.KEY`, by (NAME in upper case, KEY)."""

    node_id: int
    broker_id: int
    broker_id_generation_enable: bool
    reserved_broker_max_id: int
    broker_rack: str | None
    zookeeper_connect: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_max_in_flight_requests: int
    zookeeper_set_acl: bool
    tidelog_zookeeper_digest: str | None
    listeners: tuple[str, ...]
    advertised_listeners: tuple[str, ...] | None
    listener_security_protocol_map: tuple[str, ...]
    inter_broker_listener_name: str | None
    security_inter_broker_protocol: str
    controller_listener_names: tuple[str, ...]
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: tuple[str, ...]
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    connections_max_reauth_ms: int
    queued_max_requests: int
    request_timeout_ms: int
    max_request_partition_size_limit: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    tidelog_request_max_bytes: int
    tidelog_connection_output_max_bytes: int
    tidelog_connection_parked_max: int
    tidelog_blocking_threads: int
    ssl_client_auth: str
    ssl_enabled_protocols: tuple[str, ...]
    ssl_cipher_suites: tuple[str, ...]
    ssl_keystore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_password: str | None
    ssl_truststore_type: str
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_endpoint_identification_algorithm: str
    ssl_principal_mapping_rules: str
    sasl_enabled_mechanisms: tuple[str, ...]
    sasl_mechanism_inter_broker_protocol: str
    sasl_jaas_config: str | None
    sasl_server_max_receive_size: int
    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool
    log_dir: tuple[str, ...]
    log_dirs: tuple[str, ...]
    num_partitions: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    log_segment_bytes: int
    log_roll_ms: int
    log_roll_hours: int
    log_roll_jitter_ms: int
    log_roll_jitter_hours: int
    log_retention_ms: int
    log_retention_minutes: int | None
    log_retention_hours: int
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_cleanup_policy: tuple[str, ...]
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_backoff_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_delete_retention_ms: int
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_max_compaction_lag_ms: int
    log_index_size_max_bytes: int
    log_index_interval_bytes: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_preallocate: bool
    log_segment_delete_delay_ms: int
    log_initial_task_delay_ms: int
    num_recovery_threads_per_data_dir: int
    message_max_bytes: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    log_message_timestamp_type: str
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_after_max_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    tidelog_fsync_before_ack: str
    tidelog_fsync_threads: int
    tidelog_open_files_max: int
    default_replication_factor: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    replica_lag_time_max_ms: int
    replica_lag_max_messages: int
    replica_socket_timeout_ms: int
    replica_socket_receive_buffer_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    num_replica_fetchers: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_selector_class: str
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    controller_socket_timeout_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_per_broker_percentage: int
    leader_imbalance_check_interval_seconds: int
    offset_metadata_max_bytes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    offsets_load_buffer_size: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_commit_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    tidelog_group_registry_enable: bool
    transactional_id_expiration_ms: int
    transaction_max_timeout_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_partition_verification_enable: bool
    transaction_two_phase_commit_enable: bool
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """The settings of a broker started with `properties`. Raises ConfigError with every problem there is."""
        return cls._of(Layers(static=MappingProxyType(dict(properties))))

    def with_dynamic(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """The settings once the dynamic layers are `default` (all brokers) and `broker` (this one)."""
        static = self.layers.static
        return self._of(Layers(static, MappingProxyType(dict(default)), MappingProxyType(dict(broker))))

    def with_id(self, broker_id: int) -> BrokerConfig:
        """The settings of a broker that was given its number only when it joined the cluster."""
        static = MappingProxyType({**self.layers.static, "broker.id": str(broker_id)})
        return self._of(self.layers._replace(static=static))

    @classmethod
    def _of(cls, layers: Layers) -> BrokerConfig:
        read = read_layers(layers)
        config = object.__new__(cls)
        for attribute, value in (
            ("layers", layers),
            ("endpoints", read.endpoints),
            ("warnings", read.warnings),
            ("listener_overrides", read.listener_overrides),
            *((BROKER_KEYS[name].attribute, value) for name, value in read.values.items()),
        ):
            object.__setattr__(config, attribute, value)
        return config

    @property
    def alone(self) -> bool:
        """Whether this broker coordinates itself and no other can join it."""
        return not self.zookeeper_connect

    def value(self, name: str) -> Value:
        """The effective value of the broker key `name`."""
        value: Value = getattr(self, BROKER_KEYS[name].attribute)
        return value

    def listener_value(self, listener: str, name: str) -> Value:
        """The value of `name` for one listener: its own override, or the broker's."""
        return self.listener_overrides.get((listener.upper(), name), self.value(name))

    def __repr__(self) -> str:
        shown = {
            name: "[hidden]" if name not in BROKER_KEYS or BROKER_KEYS[name].sensitive else text
            for name, text in self.layers.merged().items()
        }
        return f"BrokerConfig({shown})"
